"""Commands on whole devices: `devices`, `info`, `exec`, `reset`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.exit_codes import asynchronous
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.concurrency import off_loop
from fastflight.errors import RequestError


@asynchronous
@with_server_options
async def devices(json: AsJson = False, server: Server = DEFAULT_SERVER) -> None:
    """List the server's devices."""
    async with server.client() as client:
        known = await client.devices()
    if json:
        screen.as_json([asdict(device) for device in known])
        return
    rows = [(device.name, device.url, "open" if device.open else "closed", device.holder or "-") for device in known]
    screen.table(("name", "url", "line", "in use by"), rows)


@asynchronous
@with_server_options
async def info(
    device: DeviceName, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show a board's firmware, memory, storage and features."""
    async with server.client() as client:
        facts = await client.info(device, interrupt=interrupt)
    if json:
        screen.as_json(facts)
        return
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        screen.line(f"{key.replace('_', ' '):{width}}  {_format_value(value)}")


@asynchronous
@with_server_options
async def exec(
    device: DeviceName,
    code: Annotated[str, typer.Argument(metavar="CODE", help="Python to run on the board; - reads it from stdin.")],
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0.01, metavar="SECONDS", help="Interrupt the code after this long without output."
        ),
    ] = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Run code on a device and show its output as it arrives.

    If the code raises, the board's traceback is printed on stderr and the exit code is 1.
    With --json, each line of output is one object.
    """
    # In a thread: reading stdin on the event loop would block it, and Ctrl-C could not cancel the command.
    program = await off_loop(_read_stdin) if code == "-" else code
    async with (
        server.client() as client,
        await client.exec(device, program, timeout=timeout, interrupt=interrupt) as stream,
    ):
        async for batch in stream:
            for row in batch.to_pylist():
                if json:
                    screen.as_json(row)
                else:
                    screen.line(row["text"])


@asynchronous
@with_server_options
async def reset(
    device: DeviceName,
    hard: Annotated[bool, typer.Option("--hard", help="Restart the chip, not only its program.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Restart a device."""
    async with server.client() as client:
        await client.reset(device, hard=hard, interrupt=interrupt)


def _read_stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise RequestError("not text", where="stdin", hint="Write the code in the encoding of this terminal") from error


def _format_value(value: Any) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return screen.printable(", ".join(map(str, value)))
    return screen.printable(str(value))
