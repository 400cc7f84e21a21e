"""The HTTP and WebSocket edge, for browsers, curl and phones. It serves the same requests and errors as Flight."""

from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.http.listening import DEFAULT_HOST, Gateway, listen
from fastflight.gateway.http_routes import application
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.page.listeners import OpenListener, tap_listeners
from fastflight.gateway.relay.relay import Relay
from fastflight.gateway.relay.targets import AllowedTargets

__all__ = [
    "DEFAULT_HOST",
    "AllowedTargets",
    "Backend",
    "OriginPolicy",
    "Gateway",
    "OpenListener",
    "Relay",
    "StreamedAnswer",
    "application",
    "listen",
    "tap_listeners",
]
