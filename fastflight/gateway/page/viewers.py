"""`/ws/fleet`: sends the messages of the live page, as text. Messages from the page are ignored.

A page that does not read fills the buffers of its connection. Then it gets no more until it reads (see `PageViewer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastflight.gateway.auth import Caller
from fastflight.gateway.backend import Backend
from fastflight.gateway.cancellation import cancel_when
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.page.fleet import Fleet
from fastflight.gateway.page.listeners import MAX_SESSIONS, OpenListener, session_listeners
from fastflight.gateway.page.view import PageViewer
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening
from fastflight.service.requests import SERVER_DRAINING

# Callers with open pages, in front of a server elsewhere: each caller has their own sessions there.
MAX_FLEETS = 16


class Viewers:
    """Accepts WebSockets of the kind `fleet`."""

    def __init__(self, backend: Backend, open_listener: OpenListener | None) -> None:
        """`open_listener` listens to devices of this process; None: listen through sessions."""
        self._backend = backend
        # In front of a server elsewhere, a session needs the caller's own credentials: each caller has a fleet.
        self._room = asyncio.Semaphore(MAX_SESSIONS)
        self._shared = (
            None if backend.guarded is None else Fleet(backend, open_listener or session_listeners(backend, self._room))
        )
        self._own: dict[Caller, Fleet] = {}
        self._skipped_before = 0

    def __call__(self, opening: Opening) -> AcceptedUpgrade:
        if opening.rest:
            raise HttpRefusal(404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/fleet")

        async def talk(channel: WebSocketChannel) -> str:
            with self._fleet(opening.caller).viewed(opening.caller) as viewer:
                try:
                    async with cancel_when(lambda: _left(channel)):
                        while (message := await viewer.next()) is not None:
                            await channel.send(message)
                finally:
                    self._skipped_before += viewer.skipped
                    viewer.skipped = 0
            return SERVER_DRAINING

        return AcceptedUpgrade(talk)

    def all(self) -> Iterator[PageViewer]:
        """Yield all viewers."""
        for fleet in (*list(self._own.values()), *([self._shared] if self._shared is not None else [])):
            yield from fleet.viewers

    @property
    def skipped(self) -> int:
        """How many messages slow pages have missed."""
        return self._skipped_before + sum(viewer.skipped for viewer in self.all())

    def _fleet(self, caller: Caller) -> Fleet:
        if self._shared is not None:
            return self._shared
        if caller not in self._own:
            self._own = {each: fleet for each, fleet in self._own.items() if fleet.running}
            if len(self._own) >= MAX_FLEETS:
                raise HttpRefusal(503, f"{MAX_FLEETS} callers have the page open already", hint="Try again later")
            self._own[caller] = Fleet(self._backend, session_listeners(self._backend, self._room, caller))
        return self._own[caller]


async def _left(channel: WebSocketChannel) -> Exception:
    """Read until `receive` raises because the page has gone."""
    while True:
        await channel.receive()
