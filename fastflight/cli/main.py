"""The command `fastflight`. The module of a subcommand is imported when the subcommand is called."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup

import fastflight
from fastflight.cli import screen
from fastflight.cli.chain import PLUS, run_chain
from fastflight.cli.exit_codes import REFUSED

# For each subcommand its module in `fastflight.cli`, and its line of `fastflight --help`: the start of its own help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "ls": ("files", "List a folder on a device, or what a glob matches: 'demo:/*.csv'."),
    "cat": ("cat", "Print the bytes of files of a device on standard output."),
    "head": (
        "cat",
        "Show the first rows of a file of a device as a table. Of a file without rows, print the first lines.",
    ),
    "get": ("get", "Read a file of a device: copy it, convert it, or show it as a table."),
    "put": (
        "put",
        "Write a local file to a device. It is converted if the endings name different table formats, else copied.",
    ),
    "cp": ("cp", "Copy files as they are: to a device, from a device, or from one device to another."),
    "sync": (
        "sync",
        "Copy what differs between a local folder and a folder on a device, by digests that the board computes.",
    ),
    "collect": ("collect", "Store the log that a program on a board appends to, each line once, and remove it."),
    "deploy": ("deploy", "Bring a new version of a program to boards. Where it is not healthy, the old version stays."),
    "edit": ("edit", "Edit a file of a device in your editor. A file that does not exist is created."),
    "rm": ("files", "Remove files or empty folders of a device."),
    "mkdir": ("files", "Make folders on a device."),
    "mv": ("files", "Rename a file or folder of a device."),
    "hash": (
        "files",
        "Show the digests of files, as their boards compute them: sha256, or crc32 on boards without it.",
    ),
    "df": ("board", "Show the size and the free space of a board's file systems."),
    "info": ("board", "Show a board's firmware, memory, storage and features."),
    "rtc": ("board", "Show or set the clock of a board."),
    "reset": ("board", "Restart a device."),
    "soft-reset": ("board", "Restart the interpreter of a board, which then runs main.py. The chip is not reset."),
    "bootloader": ("board", "Start the bootloader of a board, for new firmware. Its line goes away until it is reset."),
    "agent": ("agent", "Put fastflight's agent on a board, for requests beside its program, or remove it."),
    "repl": ("repl", "Type at a board's prompt. Ctrl-] leaves; all other keys go to the board, also Ctrl-C."),
    "exec": ("run", "Run code on a device and show its output as it arrives."),
    "run": ("run", "Run a local file on a device and show its output as it arrives. Nothing is stored on the device."),
    "eval": ("run", "Show the value of an expression on a device, as the board's prompt does."),
    "mount": (
        "mount",
        "Let a board use a local folder as /remote, and type at its prompt. Nothing is copied to the board.",
    ),
    "tail": ("tail", "Show the live output of a device, without interrupting its program, until Ctrl-C."),
    "plot": ("plot", "Plot columns of a device's live output into a PNG file."),
    "record": ("record", "Record a device on the server, until --stop. Earlier recordings of the device stay."),
    "replay": ("replay", "Show a recording of a device: lines with their times, and what is missing and why."),
    "recordings": ("record", "List the recordings of the server."),
    "sql": ("sql", "Show the result of an SQL query over the server's files and recordings."),
    "serve": (
        "serve",
        "Serve devices as tables. Without --device and --fleet, serve one simulated board, named demo.",
    ),
    "bridge": (
        "bridge",
        "Share a device over network ports with mpremote, esptool, pyserial and other tools.",
    ),
    "devices": ("device_list", "List the server's devices, or add and remove some."),
    "cluster": ("cluster", "Show the servers of a cluster and the owners of devices, or run a cluster to try it."),
    "ports": ("ports", "List the serial ports of this computer. No port is opened."),
    "stats": (
        "stats",
        "Show what a server does: its limits and their use, streams, devices, recordings, event loops.",
    ),
    "doctor": ("doctor", "Check this installation, its serial ports, the given devices and the server."),
    "token": ("token", "Grant access to a server: by tokens, or by names of client certificates."),
    "cert": ("cert", "Make certificates for a server and its clients, signed by your own CA."),
}
# The headings of `fastflight --help`, with their subcommands.
PANELS: Mapping[str, tuple[str, ...]] = {
    "Boards": (
        *("ls", "cat", "head", "get", "put", "cp", "sync", "collect", "edit", "rm", "mkdir", "mv", "hash"),
        *("df", "info", "rtc", "reset", "soft-reset", "bootloader", "agent", "deploy"),
    ),
    "Live": ("repl", "exec", "run", "eval", "mount", "tail", "plot"),
    "Recordings": ("record", "replay", "recordings", "sql"),
    "Server": ("serve", "bridge", "devices", "cluster", "ports", "stats", "doctor"),
    "Access": ("token", "cert"),
}
# The base class of all errors of the command line's parser. Typer exports no name for it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


# Typer's own puts a name that must be given in braces.
TyperArgument.get_usage_pieces = lambda self, ctx: [self.make_metavar(ctx)]  # type: ignore[method-assign]


def _hide_types(command: Any) -> None:
    """Leave the type column of the arguments in `--help` empty: typer has `<str>` there."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            parameter.type = copy.copy(parameter.type)
            parameter.type.get_metavar = lambda param, ctx: ""  # type: ignore[method-assign]
    for subcommand in getattr(command, "commands", {}).values():
        _hide_types(subcommand)


def load(name: str) -> Any:
    """Import the module of the subcommand `name`, and return the subcommand with its options."""
    module = importlib.import_module(f"fastflight.cli.{COMMANDS[name][0]}")
    group = getattr(module, "app", None)  # of commands with subcommands of their own
    if group is None:
        group = typer.Typer(add_completion=False)
        group.command(name)(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(group)
    _hide_types(command)
    return command


class Commands(TyperGroup):
    """The group of all subcommands: placeholders with a help text, until one of them is called.

    Escapes control characters in usage errors. If standard output cannot be written (a full disk), any command ends
    with one line on stderr and exit code 1.
    """

    def resolve_command(self, *args: Any) -> Any:
        name, placeholder, rest = super().resolve_command(*args)
        return name, placeholder if name is None else load(name), rest

    def main(self, *arguments: Any, **options: Any) -> Any:
        first, *rest = arguments or (options.pop("args", None),)
        words = sys.argv[1:] if first is None else list(first)
        if PLUS in words:
            return run_chain(words, lambda command: self.main(command, *rest, **options))
        try:
            return super().main(words, *rest, **options)
        except OSError as error:
            screen.discard_output(sys.stdout)
            screen.complain(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            raise SystemExit(REFUSED) from error

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _printable_usage():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _printable_usage():
            return super().invoke(ctx)


@contextmanager
def _printable_usage() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        error.message = screen.printable_lines(error.message)  # type: ignore[attr-defined]
        raise


def _print_version(wanted: bool) -> None:
    if wanted:
        screen.line(f"fastflight {fastflight.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    help="Use MicroPython devices as tables. `serve` and `bridge` open devices; most other commands call a "
    "server, or use the only board that is plugged in. With + between them, several commands run in one process.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a subcommand."""


for _panel, _names in PANELS.items():
    for _name in filter(COMMANDS.__contains__, _names):
        app.command(_name, help=COMMANDS[_name][1], rich_help_panel=_panel)(lambda: None)
