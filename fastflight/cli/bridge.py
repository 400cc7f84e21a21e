"""`fastflight bridge`: share one device over network ports with other tools, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from typing import Annotated

import typer

from fastflight.app.addresses import check_host
from fastflight.app.config import DRAIN_SECONDS, MAX_DRAIN_SECONDS
from fastflight.app.device_address import device_address
from fastflight.app.process import END_SECONDS, end_within, leave, stop_signal
from fastflight.bridge import Bridge, DeviceFront, Ports
from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.log import JsonLog, log_to_stderr, warn_of_unconfined_boards
from fastflight.cli.options import LIMITS
from fastflight.concurrency import Shard
from fastflight.device import Device
from fastflight.errors import RequestError

DEFAULT_PORTS = Ports(rfc2217=2217, socket=2218)
# The device's URL is its name here. The command in an `exec:` URL may have any length.
NAME_CHARACTERS = 80
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="S",
        min=0,
        max=MAX_DRAIN_SECONDS,
        help="Seconds for open streams and connected tools to end by themselves at shutdown.",
        rich_help_panel=LIMITS,
    ),
]


def bridge(
    url: Annotated[str, typer.Argument(metavar="URL", help="The device, as in /dev/ttyACM0 or exec:micropython.")],
    rfc2217: Annotated[
        int | None,
        typer.Option(
            "--rfc2217", min=0, max=65535, metavar="PORT", help="Port for tools that set the baud rate and DTR/RTS."
        ),
    ] = None,
    socket: Annotated[
        int | None,
        typer.Option("--socket", min=0, max=65535, metavar="PORT", help="Port for plain bytes over TCP."),
    ] = None,
    viewers: Annotated[
        int | None,
        typer.Option(
            "--viewers", min=0, max=65535, metavar="PORT", help="Port for several clients that only see the output."
        ),
    ] = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="A new client takes the device from the current one.")
    ] = False,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    drain: Drain = DRAIN_SECONDS,
    log_json: JsonLog = False,
) -> None:
    """Share a device over network ports with mpremote, esptool, pyserial and other tools.

    Without --rfc2217 and --socket, the ports are 2217 and 2218. Port 0 takes a free port.

    Device URLs: serial:///dev/ttyACM0 (or the bare port), rfc2217://host:port, socket://host:port, ws://host:port,
    exec:COMMAND, sim:
    """
    log_to_stderr(as_json=log_json)
    try:
        check_host(host)
        address = device_address(url)
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error
    warn_of_unconfined_boards([url])
    ports = Ports(rfc2217, socket, viewers)
    if rfc2217 is None and socket is None:
        ports = Ports(DEFAULT_PORTS.rfc2217, DEFAULT_PORTS.socket, viewers)
    name = textwrap.shorten(address.url, NAME_CHARACTERS, placeholder=" ...")
    with report_errors(), stop_signal() as wait, contextlib.ExitStack() as ending, contextlib.ExitStack() as parts:
        shard = Shard("bridge")
        device = Device(name, address, shard=shard)
        parts.callback(device.close)
        parts.enter_context(shard)
        running = Bridge(DeviceFront(device), ports, host=host, takeover=takeover)
        shard.submit(running.start()).result()
        parts.callback(lambda: shard.submit(running.aclose()).result())
        for line in _connection_examples(name, running.ports, host):
            screen.line(line)
        wait()
        ending.enter_context(end_within(drain + END_SECONDS))
        screen.complain(f"stopping: connected tools have {drain:g} s to finish; press Ctrl-C again to stop at once")
        shard.submit(running.drain(drain)).result()
    leave()


def format_addresses(ports: Ports, host: str) -> str:
    """Return the addresses of a bridge as text, separated by commas."""
    return ", ".join(("viewers at " if kind == "viewers" else "") + url for kind, url in ports.urls(host).items())


def _connection_examples(name: str, ports: Ports, host: str) -> Iterator[str]:
    """Yield the line that says where the device is shared, then commands that connect to it."""
    urls = ports.urls(host)
    yield f"sharing {name} at {format_addresses(ports, host)}"
    if address := urls.get("socket"):
        yield f"  mpremote connect {address}"
        # For tools that open only serial ports, such as Thonny.
        yield f"  socat pty,link=board,rawer {address.replace('socket://', 'tcp:')}  # makes a serial port: ./board"
    if address := urls.get("rfc2217"):
        yield f"  mpremote connect {address}"
        yield f"  esptool --port '{address}?ign_set_control' flash-id"
        yield f"  python -m serial.tools.miniterm {address} 115200"
    if address := urls.get("viewers"):
        yield f"  socat -u {address.replace('socket://', 'tcp:')} -"
