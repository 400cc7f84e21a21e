"""The process that the suite `boards` measures: it moves a file to and from many boards at once.

It reads its task as JSON from standard input, and writes its figures as JSON to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fastflight.device import AsyncSession, Inventory, Session
from fastflight.errors import FastFlightError
from fastflight_benchmark.cores import Usage
from fastflight_benchmark.suites.transfer.contents import DOWNLOAD, HOLDER, SYNC, UPLOAD, path_of, pieces

UP, DOWN = "/up.bin", "/down.bin"
# A transfer of this size goes both ways on each line first. It installs the code that runs on the board.
WARM_UP_BYTES = 4_000


def main() -> None:
    task = json.load(sys.stdin)
    content = Path(task["source"]).read_bytes()
    with Inventory({f"board{number}": url for number, url in enumerate(task["urls"])}) as inventory:
        usage = Usage(task["pids"])
        if task["path"] == SYNC:
            found = move(inventory, content, usage)
        else:
            found = asyncio.run(amove(inventory, content, usage))
    json.dump(found, sys.stdout)


def move(inventory: Inventory, content: bytes, usage: Usage) -> dict[str, Any]:
    """Carry out both operations on the sync path, with a thread for each board."""
    devices = inventory.devices()
    with contextlib.ExitStack() as leases, ThreadPoolExecutor(len(devices)) as threads:
        opened = threads.map(lambda device: leases.enter_context(device.lease(HOLDER)), devices)
        sessions: list[Session] = list(opened)

        def upload(session: Session) -> bool:
            session.write(UP, iter((content,)))
            return True

        def download(session: Session) -> bool:
            return b"".join(session.read(DOWN)) == content

        def together(work: Callable[[Session], bool]) -> list[bool | BaseException]:
            waiting = [threads.submit(work, session) for session in sessions]
            return [task.exception() or task.result() for task in waiting]

        def warm_up(session: Session) -> bool:
            session.write(UP, iter((content[:WARM_UP_BYTES],)))
            return bool(b"".join(session.read(UP)))

        together(warm_up)
        return {
            "path": path_of(sessions[0]),
            UPLOAD: _timed(usage, lambda: together(upload)),
            DOWNLOAD: _timed(usage, lambda: together(download)),
        }


async def amove(inventory: Inventory, content: bytes, usage: Usage) -> dict[str, Any]:
    """Carry out both operations on the async path, with all boards on this loop."""
    async with contextlib.AsyncExitStack() as leases:
        sessions: list[AsyncSession] = []
        for device in inventory.devices():
            sessions.append(await leases.enter_async_context(device.alease(HOLDER)))

        async def upload(session: AsyncSession) -> bool:
            await session.write(UP, pieces(content))
            return True

        async def download(session: AsyncSession) -> bool:
            return b"".join([piece async for piece in session.read(DOWN)]) == content

        async def together(work: Callable[[AsyncSession], Coroutine[Any, Any, bool]]) -> dict[str, Any]:
            usage.begin()
            done = await asyncio.gather(*(work(session) for session in sessions), return_exceptions=True)
            return _figures(usage, done)

        async def warm_up(session: AsyncSession) -> bool:
            await session.write(UP, pieces(content[:WARM_UP_BYTES]))
            return bool([piece async for piece in session.read(UP)])

        await together(warm_up)
        return {"path": path_of(sessions[0]), UPLOAD: await together(upload), DOWNLOAD: await together(download)}


def _timed(usage: Usage, work: Callable[[], Sequence[bool | BaseException]]) -> dict[str, Any]:
    usage.begin()
    return _figures(usage, work())


def _figures(usage: Usage, done: Sequence[bool | BaseException]) -> dict[str, Any]:
    figures = usage.end()
    failed = [result for result in done if isinstance(result, BaseException)]
    for error in failed:
        if not isinstance(error, FastFlightError):
            raise error
    return figures | {"verified": sum(result is True for result in done), "errors": [str(error) for error in failed]}


if __name__ == "__main__":
    main()
