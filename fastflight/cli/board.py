"""Devices as such: `devices`, `info`, `exec`, `reset`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.asking import HERE, Server, asking
from fastflight.cli.exits import asynchronous
from fastflight.cli.target import AsJson, Interrupt
from fastflight.concurrency import off_loop
from fastflight.errors import RequestError

DeviceName = Annotated[str, typer.Argument(metavar="DEVICE", help="A device's name, as `fastflight devices` shows it.")]


@asynchronous
@asking
async def devices(json: AsJson = False, server: Server = HERE) -> None:
    """List the server's devices."""
    async with server.client() as client:
        known = await client.devices()
    if json:
        screen.as_json([asdict(device) for device in known])
        return
    rows = [(device.name, device.url, "open" if device.open else "closed", device.holder or "-") for device in known]
    screen.table(("name", "url", "line", "in use by"), rows)


@asynchronous
@asking
async def info(device: DeviceName, interrupt: Interrupt = False, json: AsJson = False, server: Server = HERE) -> None:
    """Show what a board says of itself: firmware, memory, space, what it can do."""
    async with server.client() as client:
        told = await client.info(device, interrupt=interrupt)
    if json:
        screen.as_json(told)
        return
    width = max(map(len, told), default=0)
    for key, value in told.items():
        screen.line(f"{key.replace('_', ' '):{width}}  {_word(value)}")


@asynchronous
@asking
async def exec(
    device: DeviceName,
    code: Annotated[str, typer.Argument(metavar="CODE", help="Python to run on the board; - reads it from stdin.")],
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.01, metavar="SECONDS", help="Silence after which it is interrupted."),
    ] = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = HERE,
) -> None:
    """Run code on a device and show its output as it comes.

    Exit code 1, with the board's traceback on stderr, if it raises. With --json, one object per line of output.
    """
    # Not on the loop, where it would wait for the end of what is typed, also after Ctrl-C.
    program = await off_loop(_typed) if code == "-" else code
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
@asking
async def reset(
    device: DeviceName,
    hard: Annotated[bool, typer.Option("--hard", help="Restart the chip, not only its program.")] = False,
    interrupt: Interrupt = False,
    server: Server = HERE,
) -> None:
    """Restart a device."""
    async with server.client() as client:
        await client.reset(device, hard=hard, interrupt=interrupt)


def _typed() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise RequestError("not text", where="stdin", hint="Give the code in the encoding of this terminal") from error


def _word(value: Any) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return screen.printable(", ".join(map(str, value)))
    return screen.printable(str(value))
