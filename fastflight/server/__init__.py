"""The Arrow Flight server, which serves the sources of a catalog."""

from fastflight.access.action import Action, RawAction
from fastflight.access.authenticator import Tls
from fastflight.server.flight import DEFAULT_LOCATION, FlightServer

__all__ = ["DEFAULT_LOCATION", "Action", "FlightServer", "RawAction", "Tls"]
