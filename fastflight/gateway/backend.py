"""What the gateway stands in front of: a catalog in this process, or a server elsewhere.

A `Backend` belongs to the gateway's event loop. Its errors are those of `fastflight.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fastflight.service.requests import Request


class Backend(Protocol):
    """Serves requests. Cancelling what awaits it cancels the work, at its source."""

    def decode(self, content: bytes) -> Request:
        """The request in a body, or `RequestError`."""

    async def act(self, name: str, body: bytes) -> list[Mapping[str, Any]]:
        """Carry an action out; its results."""
