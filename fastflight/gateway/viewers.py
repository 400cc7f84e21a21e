"""`/ws/fleet`: the fleet's messages to one page, as text. What the page sends is not heeded.

A page that does not read fills its connection's buffers; then it is given no more until it does (see `Viewer`).
"""

from __future__ import annotations

from fastflight.gateway.channel import Channel
from fastflight.gateway.fleet import Fleet
from fastflight.gateway.sockets import Opened, Opening
from fastflight.gateway.status import Refused
from fastflight.gateway.watching import until
from fastflight.sources.following import DRAINING


class Viewers:
    """The kind `fleet`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __call__(self, opening: Opening) -> Opened:
        if opening.rest:
            raise Refused(404, "no WebSocket there", where=opening.rest[:80], hint="It is /ws/fleet")
        return Opened(self._talk)

    async def _talk(self, channel: Channel) -> str:
        with self._fleet.viewed() as viewer:
            async with until(lambda: _left(channel)):
                while (message := await viewer.next()) is not None:
                    await channel.send(message)
        return DRAINING


async def _left(channel: Channel) -> Exception:
    """Raises once the page has gone."""
    while True:
        await channel.receive()
