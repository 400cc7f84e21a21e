"""`fastflight script`: run commands from a file or from standard input."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.chain import sharing_clients
from fastflight.cli.interruption import interruptible
from fastflight.cli.keyboard import standard_input
from fastflight.errors import RequestError

# A script is read as a whole.
MAX_SCRIPT_CHARACTERS = 1024 * 1024


@interruptible
def script(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="A local file; - or nothing: standard input.")] = "-",
) -> None:
    """Run the commands of a script, one on each line, in one process.

    Boards keep their variables from one command to the next.
    A line is what follows `fastflight` at a shell's prompt, with its quotes. What follows # is a comment.
    The first command that fails ends the script, with its exit code.
    """
    root: Any = ctx.find_root().command
    with sharing_clients():
        for number, words in _commands(file):
            try:
                root.main(words, prog_name="fastflight")
            except SystemExit as ended:
                if ended.code:
                    screen.complain(f"{_name(file)}, line {number}: this command failed")
                    raise typer.Exit(ended.code if isinstance(ended.code, int) else 1) from ended


def _commands(file: str) -> list[tuple[int, list[str]]]:
    """Return the number and the words of each line with a command. `RequestError` for a bad line."""
    try:
        if file == "-":
            text = standard_input().read(MAX_SCRIPT_CHARACTERS + 1)
        else:
            with Path(file).open(encoding="utf-8") as opened:
                text = opened.read(MAX_SCRIPT_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise RequestError("not UTF-8 text", where=_name(file)) from error
    if len(text) > MAX_SCRIPT_CHARACTERS:
        raise RequestError(f"a script may have {MAX_SCRIPT_CHARACTERS:,} characters", where=_name(file))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            hint = "Close the quotation mark in the same line"
            raise RequestError(f"{error}".lower(), where=f"{_name(file)}, line {number}", hint=hint) from error
        if words:
            found.append((number, words))
    return found


def _name(file: str) -> str:
    return "standard input" if file == "-" else file
