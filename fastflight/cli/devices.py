"""Commands on whole devices: `info`, `exec`, `reset`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson, DeviceName, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import RequestError


@interruptible
@with_device_options
def info(
    device: DeviceName = None, interrupt: Interrupt = False, json: AsJson = False, server: Server = DEFAULT_SERVER
) -> None:
    """Show a board's firmware, memory, storage and features."""
    with server.client() as client:
        facts = client.info(device_name(client, device), interrupt=interrupt)
    if json:
        screen.as_json(facts)
        return
    width = max(map(len, facts), default=0)
    for key, value in facts.items():
        screen.line(f"{key.replace('_', ' '):{width}}  {_format_value(value)}")


@interruptible
@with_device_options
def exec(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DEVICE] CODE", help="Python to run on the board; - reads it from stdin.", show_default=False
        ),
    ],
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
    if len(words) > 2:
        raise typer.BadParameter(f"{words[2]!r} is too much: quote the code, as in fastflight exec 'print(1)'")
    program = _read_stdin() if words[-1] == "-" else words[-1]
    with (
        server.client() as client,
        client.exec(
            device_name(client, words[0] if len(words) == 2 else None), program, timeout=timeout, interrupt=interrupt
        ) as stream,
    ):
        for batch in stream:
            for row in batch.to_pylist():
                if json:
                    screen.as_json(row)
                else:
                    screen.line(row["text"])


@interruptible
@with_device_options
def reset(
    device: DeviceName = None,
    hard: Annotated[bool, typer.Option("--hard", help="Restart the chip, not only its program.")] = False,
    interrupt: Interrupt = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Restart a device."""
    with server.client() as client:
        client.reset(device_name(client, device), hard=hard, interrupt=interrupt)


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
