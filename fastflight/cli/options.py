"""Arguments and options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from fastflight.errors import FastFlightError
from fastflight.service.choices import Format, Method, Mode, RecordedAs, SessionFormat

R = TypeVar("R")

# Headings of groups of options in `--help`, of commands that serve.
DEVICES, NETWORK, CLUSTER, RECORDINGS, LIMITS, ACCESS, LOGGING = (
    "Devices",
    "Network",
    "Cluster",
    "Recordings",
    "Limits",
    "Access",
    "Logging",
)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a group: its annotation for typer, and its value if it is left out."""

    annotation: Any
    default: Any = None


def option(
    kind: Any,
    name: str,
    help: str,
    *,
    default: Any = None,
    metavar: str | None = None,
    panel: str | None = None,
    **keys: Any,
) -> Option:
    """Return an option with the value type `kind`. `panel` is its heading in `--help`; `keys` are those of typer."""
    declared = typer.Option(name, help=help, metavar=metavar, rich_help_panel=panel, **keys)
    return Option(Annotated[kind if default is not None else kind | None, declared], default)


def with_options(
    name: str, group: Mapping[str, Option], value_of: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator of commands: it puts the options of `group` in place of the command's parameter `name`.

    The parameter gets what `value_of` returns for the values of the options, by their names in the group.
    """
    return lambda command: _with_options(command, name, group, value_of)


def _with_options(
    command: Callable[..., R], name: str, group: Mapping[str, Option], value_of: Callable[[dict[str, Any]], Any]
) -> Callable[..., R]:
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> R:
        values = {option: kwargs.pop(option) for option in group}
        return command(*args, **kwargs, **{name: value_of(values)})

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == name:
            parameters += [
                inspect.Parameter(each, keyword, default=option.default, annotation=option.annotation)
                for each, option in group.items()
            ]
        else:
            has_keywords = bool(parameters) and parameters[-1].kind == keyword
            parameters.append(parameter.replace(kind=keyword) if has_keywords else parameter)
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def device_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the device names that a shell offers for `incomplete` at Tab. None, if the server cannot be asked.

    The server is the one of the options that are typed already, or of the environment.
    """
    from fastflight.cli.server_options import SERVER_OPTIONS, Server

    values = {name: context.params.get(name) for name in SERVER_OPTIONS}
    try:
        with Server(values.pop("server"), values).boards(tables=False) as boards:
            return [each.name for each in boards.devices() if each.name.startswith(incomplete)]
    except (FastFlightError, typer.Exit, typer.BadParameter):
        return []


DeviceName = Annotated[
    str | None,
    typer.Argument(
        metavar="[DEVICE]",
        help="A device's name, as `fastflight devices` shows it; not needed if there is only one.",
        autocompletion=device_names,
    ),
]
DevicePath = Annotated[
    str, typer.Argument(metavar="[DEVICE]:PATH", help="A path on a device; without DEVICE on the only one.")
]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Format of the device's file. By default its ending decides.")
]
Record = Annotated[
    str | None,
    typer.Option(
        "--struct", metavar="LAYOUT", help="Layout of one record of a packed file, as for Python's struct: '<IfH'."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="A,B,...", help="Columns to keep; for packed, the names of its fields."),
]
ModeOption = Annotated[
    Mode, typer.Option("--mode", help="Work in the thread of the call (sync) or on an event loop (async).")
]
LineFormat = Annotated[
    SessionFormat, typer.Option("--format", help="The lines as they are, or the columns of their rows.")
]
LineSchema = Annotated[
    str | None,
    typer.Option(
        "--schema", metavar="NAME=TYPE,...", help="The columns of jsonl and csv lines. Left out: those of --as rows."
    ),
]
TypedRows = Annotated[
    RecordedAs | None,
    typer.Option("--as", help="The typed rows that the device prints, as its entry says or as they are recognised."),
]
Since = Annotated[
    float | None,
    typer.Option(
        "--since", min=0, metavar="SECONDS", help="Begin this long ago, as far as the server still has the output."
    ),
]
RowLimit = Annotated[int | None, typer.Option("--lines", "-n", min=1, metavar="N", help="End after N rows.")]
RawBytes = Annotated[bool, typer.Option("--raw", help="Print only the device's bytes; on a terminal as text.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Interrupt = Annotated[bool, typer.Option("--interrupt", help="First stop the program that runs on the device.")]
DevicePaths = Annotated[
    list[str],
    typer.Argument(metavar="[DEVICE]:PATH", help="Paths or globs on a device, as in 'demo:/log-*.csv'."),
]
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Copy a folder with its subfolders.")]
SkipUnchanged = Annotated[
    bool | None,
    typer.Option(
        "--skip-unchanged/--no-skip-unchanged",
        help="Copy only files that differ by size or digest.  [default with -r]",
        show_default=False,
    ),
]
Everything = Annotated[
    bool,
    typer.Option("--all", help="Also copy what is left out of a folder by default, and ignore .fastflightignore."),
]
Resume = Annotated[
    bool,
    typer.Option("--resume/--no-resume", help="Continue an interrupted copy; when interrupted, keep what was copied."),
]
TransferOption = Annotated[
    Method, typer.Option("--transfer", help="Encoding on the line; auto takes the fastest that the board supports.")
]
Deflate = Annotated[
    bool | None,
    typer.Option(
        "--deflate/--no-deflate",
        help="Compress on the line, if the board can inflate. By default not on lines known to have 1 Mbaud or more.",
    ),
]
