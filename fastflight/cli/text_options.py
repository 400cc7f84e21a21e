"""The options that say how a text file is written, for commands that read rows.

A command has a parameter `text: TextOptions` and the decorator `with_text_options`, which replaces the parameter by the
options. What is not said on the command line is not in the `TextOptions`: the server finds it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fastflight.cli.options import Option, option, with_options
from fastflight.client.options import TextOptions
from fastflight.service.choices import Decimal

NO_TEXT_OPTIONS = TextOptions()

# The heading of these options in `--help`.
TEXT_FILES = "Text files (found out by default)"
# Names for delimiters that are awkward to type.
DELIMITERS = {"tab": "\t", "blank": " ", "blanks": " "}


OPTIONS: Mapping[str, Option] = {
    name: option(kind, f"--{name.replace('_', '-')}", help, metavar=metavar, panel=TEXT_FILES)
    for name, kind, metavar, help in (
        ("header", str, "N", "none, or the number of the line that names the columns, 1 for the first."),
        ("delimiter", str, "CHAR", "Between cells: one character, tab, or blanks."),
        ("decimal", Decimal, None, "Before the fraction of a number."),
        ("skip_rows", int, "N", "Lines to skip at the beginning."),
        ("comment", str, "CHAR", "Begins a line to skip."),
        ("encoding", str, "NAME", "As Python names it: cp1252."),
        ("null_values", str, "A,B,...", "Texts that mean no value, separated by commas."),
    )
}


def _as_keys(values: dict[str, Any]) -> TextOptions:
    options = {name: value for name, value in values.items() if value is not None}
    if (header := options.get("header")) is not None and header.isdecimal():
        options["header"] = int(header)
    if (delimiter := options.get("delimiter")) is not None:
        options["delimiter"] = DELIMITERS.get(delimiter, delimiter)
    if (null_values := options.get("null_values")) is not None:
        options["null_values"] = null_values.split(",")
    return cast(TextOptions, options)


# In place of a command's parameter `text`, the `TextOptions`.
with_text_options = with_options("text", OPTIONS, _as_keys)
