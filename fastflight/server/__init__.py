"""The Arrow Flight server: an edge in front of the catalog's sources."""

from fastflight.server.flight import DEFAULT_LOCATION, FlightServer
from fastflight.server.tls import Tls
from fastflight.service.action import Action, RawAction

__all__ = ["DEFAULT_LOCATION", "Action", "FlightServer", "RawAction", "Tls"]
