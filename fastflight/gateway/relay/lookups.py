"""What names mean, asked of the network by few at a time.

A lookup cannot be called off: it has a thread until the network's resolver answers, which takes half a minute where
there is none. So one keeps its place until it has really ended, also when nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

# Of all clients: libuv has four threads for them.
MAX_LOOKUPS = 4
# Of one client, so that names without an answer hold up those of two other clients at most.
MAX_LOOKUPS_PER_CLIENT = 2

Lookup = Callable[[str], Awaitable[list[str]]]


class Lookups:
    """Those of one relay."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        """`lookup` asks the network; the system's resolver if None."""
        self._lookup = lookup or _looked_up
        self._places = asyncio.Semaphore(MAX_LOOKUPS)

    async def addresses(self, name: str, turns: asyncio.Semaphore) -> list[str]:
        """All that `name` has, once one of its client's `turns` and a place are free. `OSError` where it has none."""
        await turns.acquire()
        try:
            await self._places.acquire()
        except BaseException:
            turns.release()
            raise

        def over(lookup: asyncio.Future[list[str]]) -> None:
            turns.release()
            self._places.release()
            if not lookup.cancelled():
                lookup.exception()  # told to who waits, if anybody still does

        lookup = asyncio.ensure_future(self._lookup(name))
        lookup.add_done_callback(over)
        return await asyncio.shield(lookup)


async def _looked_up(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]
