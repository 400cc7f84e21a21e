"""`fastflight bridge`: a device for tools that speak over the network, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from fastflight.app.process import END_SECONDS, end_within, leave
from fastflight.app.settings import DRAIN_SECONDS, check_host
from fastflight.bridge import Bridge, LineFront, Ports, Upstream
from fastflight.cli import screen
from fastflight.cli.exits import told_in_one_line
from fastflight.cli.log import AsJsonLines, log_to_stderr, warn_of_open_boards
from fastflight.cli.options import Drain
from fastflight.concurrency.shard import MAX_OFFLOAD_THREADS
from fastflight.errors import RequestError
from fastflight.transport import Address, parse_url

DEFAULT_PORTS = Ports(rfc2217=2217, socket=2218)
# A device is known by its URL here; a command in one may be of any length.
NAME_CHARACTERS = 80


def bridge(
    url: Annotated[str, typer.Argument(metavar="URL", help="The device, as in /dev/ttyACM0 or exec:micropython.")],
    rfc2217: Annotated[
        int | None,
        typer.Option("--rfc2217", min=0, max=65535, metavar="PORT", help="For tools that set the serial line."),
    ] = None,
    socket: Annotated[
        int | None, typer.Option("--socket", min=0, max=65535, metavar="PORT", help="For bare bytes.")
    ] = None,
    viewers: Annotated[
        int | None, typer.Option("--viewers", min=0, max=65535, metavar="PORT", help="For any number that look on.")
    ] = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Give the device to the newest client, not to the first.")
    ] = False,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    drain: Drain = DRAIN_SECONDS,
    log_json: AsJsonLines = False,
) -> None:
    """Share a device by network ports, with mpremote, esptool, pyserial and others.

    Without --rfc2217 and --socket: ports 2217 and 2218. Port 0 takes a free one.

    Device URLs: serial:///dev/ttyACM0 (or the bare port), rfc2217://host:port, socket://host:port, exec:COMMAND, sim:
    """
    log_to_stderr(as_json=log_json)
    try:
        check_host(host)
        address = parse_url(url)
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    warn_of_open_boards([url])
    ports = Ports(rfc2217, socket, viewers)
    if rfc2217 is None and socket is None:
        ports = Ports(DEFAULT_PORTS.rfc2217, DEFAULT_PORTS.socket, viewers)
    # Windows' default loop cannot watch descriptors, which is how ports wait.
    loops = asyncio.SelectorEventLoop if sys.platform == "win32" else asyncio.new_event_loop
    with told_in_one_line(), contextlib.ExitStack() as ending, asyncio.Runner(loop_factory=loops) as runner:
        # What opens a port or looks a name up may hang; it is not waited for.
        offload = ThreadPoolExecutor(MAX_OFFLOAD_THREADS, "bridge-offload")
        runner.get_loop().set_default_executor(offload)
        try:
            runner.run(_serve(address, ports, host, takeover, drain, ending))
        finally:
            offload.shutdown(wait=False, cancel_futures=True)
            address.dispose()
        leave()


async def _serve(
    address: Address, ports: Ports, host: str, takeover: bool, drain: float, ending: contextlib.ExitStack
) -> None:
    stop = _on_signals()
    name = textwrap.shorten(address.url, NAME_CHARACTERS, placeholder=" ...")
    async with Bridge(LineFront(Upstream(address, name=name)), ports, host=host, takeover=takeover) as running:
        for line in _how_to(name, running.ports, host):
            screen.line(line)
        await stop.wait()
        ending.enter_context(end_within(drain + END_SECONDS))
        screen.complain(f"stopping: a tool that is at work has {drain:g} s; once more stops at once")
        await running.drain(drain)


def _on_signals() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told)
    return stop


def listed(ports: Ports, host: str) -> str:
    """The addresses of a bridge, in words."""
    return ", ".join(("viewers at " if kind == "viewers" else "") + url for kind, url in ports.urls(host).items())


def _how_to(name: str, ports: Ports, host: str) -> Iterator[str]:
    """What a user types elsewhere to get at the device."""
    urls = ports.urls(host)
    yield f"sharing {name} at {listed(ports, host)}"
    if address := urls.get("socket"):
        yield f"  mpremote connect {address}"
        # Thonny, among others, opens serial ports only.
        yield f"  socat pty,link=board,rawer {address.replace('socket://', 'tcp:')}  # makes a serial port: ./board"
    if address := urls.get("rfc2217"):
        yield f"  mpremote connect {address}"
        yield f"  esptool --port '{address}?ign_set_control' flash-id"
        yield f"  python -m serial.tools.miniterm {address} 115200"
    if address := urls.get("viewers"):
        yield f"  socat -u {address.replace('socket://', 'tcp:')} -"
