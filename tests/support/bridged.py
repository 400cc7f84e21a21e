"""A bridge in front of a device for the length of a block, for tools that block: mpremote, pyserial, esptool.

    with bridged("sim:") as ports:
        ports["socket"]              # "socket://127.0.0.1:40123"
        ports["rfc2217"]             # "rfc2217://127.0.0.1:40124"

It runs on a loop and in a thread of its own; both are gone when the block has ended, and so is what the address holds.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from fastflight.bridge import Bridge, LineFront, Ports
from fastflight.bridge.upstream import Upstream
from fastflight.transport import Address, parse_url

HOST = "127.0.0.1"
PORTS = Ports(0, 0, 0)


@contextmanager
def bridged(
    url: str, *, takeover: bool = False, parse: Callable[[str], Address] = parse_url
) -> Iterator[Mapping[str, str]]:
    """What to connect to, by the kind of port: `rfc2217`, `socket`, `viewers`."""
    address = parse(url)
    started: queue.SimpleQueue[Bridge | BaseException] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    serving = threading.Thread(
        target=_run, args=(loop, address, takeover, started, stop), name=f"bridge in front of {url}"
    )
    serving.start()
    try:
        answer = started.get()
        if isinstance(answer, BaseException):
            raise answer
        yield answer.ports.urls(HOST)
    finally:
        with suppress(RuntimeError):  # it could not start, and its loop is closed
            loop.call_soon_threadsafe(stop.set)
        serving.join()
        address.dispose()
    if not started.empty() and isinstance(failure := started.get(), BaseException):
        raise failure


def _run(
    loop: asyncio.AbstractEventLoop,
    address: Address,
    takeover: bool,
    started: queue.SimpleQueue[Bridge | BaseException],
    stop: asyncio.Event,
) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_serve(address, takeover, started, stop))


async def _serve(
    address: Address, takeover: bool, started: queue.SimpleQueue[Bridge | BaseException], stop: asyncio.Event
) -> None:
    try:
        async with Bridge(LineFront(Upstream(address)), PORTS, host=HOST, takeover=takeover) as bridge:
            started.put(bridge)
            await stop.wait()
    except BaseException as error:
        # For `bridged`, which waits for it, or looks for it when the block has ended.
        started.put(error)
