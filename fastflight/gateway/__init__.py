"""The HTTP gateway: an edge beside Flight's, for browsers, curl and phones. The same requests, the same errors."""

from fastflight.gateway.app import application
from fastflight.gateway.backend import Answer, Backend
from fastflight.gateway.listening import DEFAULT_HOST, Gateway, listen
from fastflight.gateway.local import LocalBackend

__all__ = ["DEFAULT_HOST", "Answer", "Backend", "Gateway", "LocalBackend", "application", "listen"]
