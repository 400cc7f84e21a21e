"""`/ws/fleet`: sends the messages of the live page, as text. Messages from the page are ignored.

A page that does not read fills the buffers of its connection. Then it gets no more until it reads (see `PageViewer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastflight.gateway.backend import Backend
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.page.fleet import Fleet
from fastflight.gateway.page.listeners import MAX_SESSIONS, OpenListener, session_listeners
from fastflight.gateway.page.view import PageViewer
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import Opening, Talk
from fastflight.service.requests import SERVER_DRAINING


class Viewers:
    """Accepts WebSockets of the kind `fleet`."""

    def __init__(self, backend: Backend, open_listener: OpenListener | None) -> None:
        """`open_listener` listens to devices of this process; None: listen through sessions."""
        self._fleet = Fleet(backend, open_listener or session_listeners(backend, asyncio.Semaphore(MAX_SESSIONS)))
        self._skipped_before = 0

    def __call__(self, opening: Opening) -> Talk:
        if opening.rest:
            raise HttpRefusal(404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/fleet")

        async def talk(channel: WebSocketChannel) -> str:
            with self._fleet.viewed(opening.caller) as viewer:
                try:
                    async with cancel_when(channel.left):
                        while (message := await viewer.next()) is not None:
                            await channel.send(message)
                finally:
                    self._skipped_before += viewer.skipped
                    viewer.skipped = 0
            return SERVER_DRAINING

        return talk

    def all(self) -> Iterator[PageViewer]:
        """Yield all viewers."""
        yield from self._fleet.viewers

    @property
    def skipped(self) -> int:
        """How many messages slow pages have missed."""
        return self._skipped_before + sum(viewer.skipped for viewer in self.all())
