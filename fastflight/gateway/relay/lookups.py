"""Resolves names, with a limit on lookups at the same time.

A lookup cannot be cancelled: it holds a thread until the network's resolver answers, which takes half a minute if there
is none. So a lookup keeps its place until it has ended, even if its client has left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

# Lookups of all clients together: libuv has four threads for them.
MAX_LOOKUPS = 4
# Lookups of one client, by its name: names without an answer then leave places for other clients.
MAX_LOOKUPS_PER_CLIENT = 2

Lookup = Callable[[str], Awaitable[list[str]]]


class Lookups:
    """The lookups of one relay."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        """`lookup` resolves a name; None: the system's resolver."""
        self._lookup = lookup or _resolve
        self._places = asyncio.Semaphore(MAX_LOOKUPS)
        # By client, while it has a lookup or waits for one.
        self._places_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def addresses(self, name: str, client: str) -> list[str]:
        """Return all addresses of `name`, or raise `OSError`. Waits for a place of the client and for one of all."""
        own = self._places_of.setdefault(client, asyncio.Semaphore(MAX_LOOKUPS_PER_CLIENT))
        await own.acquire()
        try:
            await self._places.acquire()
        except BaseException:
            own.release()
            raise

        def release(lookup: asyncio.Future[list[str]]) -> None:
            own.release()
            self._places.release()
            if not lookup.cancelled():
                lookup.exception()  # fetched here, as asyncio logs an exception that nobody has fetched

        lookup = asyncio.ensure_future(self._lookup(name))
        lookup.add_done_callback(release)
        return await asyncio.shield(lookup)


async def _resolve(name: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]
