"""Commands that run the user's code on a board: `exec`, `run`, `eval`. If it raises, the exit code is 1."""

from __future__ import annotations

from contextlib import closing
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from fastflight import own_code
from fastflight.cli import screen
from fastflight.cli.arguments import opened
from fastflight.cli.interruption import interruptible
from fastflight.cli.keyboard import standard_input
from fastflight.cli.options import AsJson, Interrupt
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import RequestError
from fastflight.service.choices import DEVICE_NAME

# A program may print rarely, and its user can stop it with Ctrl-C: the longest time that a request may have.
RUN_SECONDS = 86_400.0

SilenceLimit = Annotated[
    float | None,
    typer.Option("--timeout", min=0.01, metavar="SECONDS", help="Interrupt the code after this long without output."),
]


@interruptible
@with_device_options
def exec(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DEVICE] CODE", help="Python to run on the board; - reads it from stdin.", show_default=False
        ),
    ],
    timeout: SilenceLimit = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Run code on a device and show its output as it arrives.

    If the code raises, the board's traceback is printed on stderr and the exit code is 1.
    With --json, each line of output is one object.
    """
    device, code = _device_and_code(words, "fastflight exec 'print(1)'")
    if device is None and code != "-":
        _check_is_code(code, "fastflight exec weather 'print(1)'")
    _show_output(server, device, _read_stdin() if code == "-" else code, timeout, interrupt, json)


@interruptible
@with_device_options
def run(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DEVICE] FILE", help="A local file with Python; - reads it from stdin.", show_default=False
        ),
    ],
    timeout: SilenceLimit = RUN_SECONDS,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Run a local file on a device and show its output as it arrives. Nothing is stored on the device.

    Ctrl-C stops the program on the board.
    If it raises, the board's traceback is printed on stderr and the exit code is 1.
    """
    device, file = _device_and_code(words, "fastflight run weather main.py")
    if device is not None and (device == "-" or Path(device).is_file() or device.endswith(".py")):
        device, file = file, device  # FILE DEVICE, as `put` and `mount` have it
    _show_output(server, device, _read_stdin() if file == "-" else _read_file(Path(file)), timeout, interrupt, json)


@interruptible
@with_device_options
def eval(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[DEVICE] EXPRESSION", help="An expression in Python.", show_default=False),
    ],
    timeout: SilenceLimit = None,
    interrupt: Interrupt = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show the value of an expression on a device, as the board's prompt does."""
    device, expression = _device_and_code(words, "fastflight eval '1 + 1'")
    _show_output(server, device, own_code.show(expression), timeout, interrupt, json)


def _show_output(
    server: Server, device: str | None, code: str, timeout: float | None, interrupt: bool, json: bool
) -> None:
    with (
        server.boards(tables=False) as boards,
        opened(boards, device, interrupt=interrupt) as board,
        closing(board.exec(code, timeout)) as rows,
    ):
        for row in rows:
            if json:
                screen.as_json(row)
            else:
                screen.line(row["text"])


def _device_and_code(words: list[str], example: str) -> tuple[str | None, str]:
    if len(words) > 2:
        raise typer.BadParameter(f"{words[2]!r} is too much: it is written as {example}")
    return (words[0] if len(words) == 2 else None), words[-1]


def _check_is_code(code: str, example: str) -> None:
    """Refuse the name of a device whose code was forgotten. As code it would show nothing, on the only board."""
    if DEVICE_NAME.fullmatch(code) and not iskeyword(code):
        raise typer.BadParameter(f"{code!r} is no code. After the name of a device, give the code, as in {example}")


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        hint = "Give a file with Python; `fastflight put` copies other files"
        raise RequestError("not UTF-8 text", where=str(path), hint=hint) from error


def _read_stdin() -> str:
    try:
        return standard_input().read()
    except UnicodeDecodeError as error:
        raise RequestError("not text", where="stdin", hint="Write the code in the encoding of this terminal") from error
