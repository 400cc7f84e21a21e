"""The HTTP and WebSocket edge, for browsers, curl and phones. It serves the same requests and errors as Flight."""

from fastflight.gateway.app import application
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.door import Door
from fastflight.gateway.http.listening import DEFAULT_HOST, Gateway, listen
from fastflight.gateway.local import LocalBackend
from fastflight.gateway.page.hearing import Hear, taps
from fastflight.gateway.relay.relay import Relay
from fastflight.gateway.relay.stream import Taps
from fastflight.gateway.relay.targets import AllowedTargets

__all__ = [
    "DEFAULT_HOST",
    "AllowedTargets",
    "Backend",
    "Door",
    "Gateway",
    "Hear",
    "LocalBackend",
    "Relay",
    "StreamedAnswer",
    "Taps",
    "application",
    "listen",
    "taps",
]
