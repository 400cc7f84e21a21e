"""The Arrow Flight server: an edge in front of the catalog's sources."""

from fastflight.server.actions import RawAction
from fastflight.server.flight import DEFAULT_LOCATION, FlightServer

__all__ = ["DEFAULT_LOCATION", "FlightServer", "RawAction"]
