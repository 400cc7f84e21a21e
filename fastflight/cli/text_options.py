"""The options that say how a text file is written, for commands that read rows.

A command has a parameter `text: TextOptions` and the decorator `with_text_options`, which replaces the parameter by the
options. What is not said on the command line is not in the `TextOptions`: the server finds it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, cast

import typer

from fastflight.cli.options import with_options
from fastflight.client.options import TextOptions
from fastflight.service.choices import Decimal

R = TypeVar("R")

NO_TEXT_OPTIONS = TextOptions()

# The heading of these options in `--help`.
TEXT_FILES = "Text files (found out by default)"
# Names for delimiters that are awkward to type.
DELIMITERS = {"tab": "\t", "blank": " ", "blanks": " "}


def _option(type_: Any, name: str, help_: str, metavar: str | None = None) -> Any:
    return Annotated[type_ | None, typer.Option(name, help=help_, metavar=metavar, rich_help_panel=TEXT_FILES)]


OPTIONS: Mapping[str, Any] = {
    "header": _option(str, "--header", "none, or the number of the line that names the columns, 1 for the first.", "N"),
    "delimiter": _option(str, "--delimiter", "Between cells: one character, tab, or blanks.", "CHAR"),
    "decimal": _option(Decimal, "--decimal", "Before the fraction of a number."),
    "skip_rows": _option(int, "--skip-rows", "Lines to skip at the beginning.", "N"),
    "comment": _option(str, "--comment", "Begins a line to skip.", "CHAR"),
    "encoding": _option(str, "--encoding", "As Python names it: cp1252.", "NAME"),
    "null_values": _option(str, "--null-values", "Texts that mean no value, separated by commas.", "A,B,..."),
}


def with_text_options(command: Callable[..., R]) -> Callable[..., R]:
    """Return `command` with `OPTIONS` in place of its parameter `text`."""
    return with_options(command, "text", OPTIONS, _as_keys)


def _as_keys(values: dict[str, Any]) -> TextOptions:
    options = {name: value for name, value in values.items() if value is not None}
    if (header := options.get("header")) is not None and header.isdecimal():
        options["header"] = int(header)
    if (delimiter := options.get("delimiter")) is not None:
        options["delimiter"] = DELIMITERS.get(delimiter, delimiter)
    if (null_values := options.get("null_values")) is not None:
        options["null_values"] = null_values.split(",")
    return cast(TextOptions, options)
