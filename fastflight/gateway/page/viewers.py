"""`/ws/fleet`: the fleet's messages to one page, as text. What the page sends is not heeded.

A page that does not read fills its connection's buffers; then it is given no more until it does (see `PageViewer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import Caller
from fastflight.gateway.errors import HttpRefusal
from fastflight.gateway.page.fleet import Fleet
from fastflight.gateway.page.hearing import MAX_SESSIONS, Hear, sessions
from fastflight.gateway.page.view import PageViewer
from fastflight.gateway.watching import until
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening
from fastflight.sources.following import DRAINING

# In front of a server elsewhere that knows its callers, each has sessions of their own there.
MAX_FLEETS = 16


class Viewers:
    """The kind `fleet`."""

    def __init__(self, backend: Backend, hear: Hear | None) -> None:
        """`hear` is how devices of this process are heard; by sessions, if None."""
        self._backend = backend
        # Where the server is elsewhere, and only a caller's own proof opens a session, each caller has a fleet.
        self._room = asyncio.Semaphore(MAX_SESSIONS)
        self._shared = None if backend.guarded is None else Fleet(backend, hear or sessions(backend, self._room))
        self._own: dict[Caller, Fleet] = {}
        self._skipped_before = 0

    def __call__(self, opening: Opening) -> AcceptedUpgrade:
        if opening.rest:
            raise HttpRefusal(404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/fleet")

        async def talk(channel: WebSocketChannel) -> str:
            with self._fleet(opening.caller).viewed(opening.caller) as viewer:
                try:
                    async with until(lambda: _left(channel)):
                        while (message := await viewer.next()) is not None:
                            await channel.send(message)
                finally:
                    self._skipped_before += viewer.skipped
                    viewer.skipped = 0
            return DRAINING

        return AcceptedUpgrade(talk)

    def all(self) -> Iterator[PageViewer]:
        """Those who look."""
        for fleet in (*list(self._own.values()), *([self._shared] if self._shared is not None else [])):
            yield from fleet.viewers

    @property
    def skipped(self) -> int:
        """Messages that any was too slow for, so far."""
        return self._skipped_before + sum(viewer.skipped for viewer in self.all())

    def _fleet(self, caller: Caller) -> Fleet:
        if self._shared is not None:
            return self._shared
        if caller not in self._own:
            self._own = {each: fleet for each, fleet in self._own.items() if fleet.running}
            if len(self._own) >= MAX_FLEETS:
                raise HttpRefusal(
                    503, f"{MAX_FLEETS} callers look at their devices already", hint="Ask again in a while"
                )
            self._own[caller] = Fleet(self._backend, sessions(self._backend, self._room, caller))
        return self._own[caller]


async def _left(channel: WebSocketChannel) -> Exception:
    """Raises once the page has gone."""
    while True:
        await channel.receive()
