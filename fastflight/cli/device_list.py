"""`fastflight devices`: list the devices of a server, add devices and remove them."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fastflight.cli import screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options

# Devices that are named in one line.
MAX_NAMES = 10
LIST = "list"


class ListGroup(TyperGroup):
    """A group that runs its subcommand `list` if none is named: `devices --json` is `devices list --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [LIST, *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the options of `list`, which can be given without its name."""
        own = self.params
        self.params = [*own, *self.commands[LIST].params]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = own


app = typer.Typer(cls=ListGroup, help="List the server's devices, or add and remove some.", add_completion=False)


@app.command(LIST)
@interruptible
@with_server_options
def devices(json: AsJson = False, server: Server = DEFAULT_SERVER) -> None:
    """List the server's devices. Without a subcommand, this is run."""
    with server.client() as client:
        known = client.devices()
    if json:
        screen.as_json([asdict(device) for device in known])
        return
    rows = [
        (device.name, device.url, device.kind, "open" if device.open else "closed", device.holder or "-")
        for device in known
    ]
    screen.table(("name", "url", "kind", "line", "in use by"), rows)
    for device in known:
        for output in device.publishing:
            screen.line(screen.printable(f"{device.name} publishes to {output}"))
        if device.last_crash is not None:
            times = "once" if device.crashes == 1 else f"{device.crashes} times"
            last = device.last_crash.astimezone().strftime("%Y-%m-%d %H:%M")
            screen.line(screen.printable(f"{device.name} crashed {times}, last at {last}: {device.crash}"))
    # One line for each reason: a server of a cluster without answer may have a thousand devices.
    troubled = groupby(sorted((device.trouble, device.name) for device in known if device.trouble), itemgetter(0))
    for trouble, found in troubled:
        names = [name for _, name in found]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        screen.complain(f"{', '.join(names[:MAX_NAMES])}{more}: {trouble}")


@app.command()
@interruptible
@with_server_options
def add(
    device: Annotated[
        str, typer.Argument(metavar="NAME=URL", help="As in weather=/dev/ttyACM0 or lab=socket://192.168.1.7:23.")
    ],
    record: Annotated[bool, typer.Option("--record", help="Also record it.")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Add a device to a running server.

    The server keeps it until it ends. To keep it longer, add it to the fleet file and send the server SIGHUP.
    A port is one of the server's computer. exec:, and sim: with files, are only for the fleet file.
    """
    name, equals, url = device.partition("=")
    if not (name and equals and url):
        raise typer.BadParameter(f"{device!r} is not NAME=URL, as in weather=/dev/ttyACM0")
    # Not at the top: the other commands of this module need no device URLs.
    from fastflight.transport.url import LINES, kind_of

    with server.client() as client:
        client.add_device(name, url, record=record)
    verb = "tail" if kind_of(url) == LINES else "ls"
    screen.line(f"{name}: added until the server ends. Try: fastflight {verb} {name}")


@app.command()
@interruptible
@with_server_options
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the device.")],
    server: Server = DEFAULT_SERVER,
) -> None:
    """Remove a device from a running server: its streams end with an error, and its line is closed.

    Recordings of it stay. A device of the fleet file is back when the server starts again, or gets SIGHUP.
    """
    with server.client() as client:
        closed = client.remove_device(name)
    screen.line(f"{name}: removed" + ("" if closed else "; its line is closed when the present call is done"))
