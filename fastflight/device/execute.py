"""Runs a short piece of fastflight's own code on a board and returns its output, or raises its traceback as an error.

A serial line may change a byte of the code, and neither the raw REPL nor raw paste notices: a changed path is still a
valid path. So code is sealed: it is sent as a literal together with its crc32, and the board runs it only if it
computes the same crc32 (`own_code`). Boards without crc32 get the plain code. So do boards without raw paste:
they receive code in pieces as literals, and a literal within a literal would be too long.

Each command has names of its own. An object that later commands need is kept in a place of its own: see `Kept`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.device.answers import own_failure
from fastflight.device.capabilities import Capabilities
from fastflight.protocol import Conversation, RawRepl

# Output without line ends is cut into lines of this length, so that it does not collect in memory.
MAX_LINE_BYTES = 64 * 1024


class OutputLines:
    """Splits the output of code into lines of text, without their ends. Bytes that are not UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        # Output after the last line end.
        self._rest = b""

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that these bytes complete."""
        *lines, self._rest = (self._rest + piece).split(b"\n") if piece else [self._rest]
        while len(self._rest) > MAX_LINE_BYTES:
            lines.append(self._rest[:MAX_LINE_BYTES])
            self._rest = self._rest[MAX_LINE_BYTES:]
        return [_text(line) for line in lines]

    def finish(self) -> list[str]:
        """Return the output after the last line end, if there is any."""
        last, self._rest = self._rest, b""
        return [_text(last)] if last else []


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


def can_seal(repl: RawRepl, capabilities: Capabilities) -> bool:
    """Return whether the board can check that code arrived unchanged."""
    return bool(repl.paste) and capabilities.has("binascii.crc32")


@dataclass(frozen=True, slots=True)
class Kept:
    """Code for an object that stays on the board between commands of ours, under the name `name`.

    `keep` stores the value of the variable `name`, `load` gives it that value again, `drop` forgets it. The object is
    in `sys.modules`, or in `builtins` on firmware without that (micro:bit). A soft reset removes it.
    """

    keep: str
    load: str
    drop: str

    @classmethod
    def at(cls, name: str, capabilities: Capabilities) -> Kept:
        """Return the code for the object `name` on a board with these capabilities."""
        if capabilities.has("sys.modules"):
            place = f"import sys\n{{}}sys.modules[{name!r}]{{}}\n"
            return cls(place.format("", f"={name}"), f"import {name}\n", place.format("del ", ""))
        place = f"import builtins\n{{}}builtins.{name}{{}}\n"
        return cls(place.format("", f"={name}"), "", place.format("del ", ""))


def execute(
    repl: RawRepl, capabilities: Capabilities, code: str, where: str, within: float, *, seal: bool = True
) -> Conversation[bytes]:
    """Run a short piece of code and return its output. If the board prints a traceback, raise the error for it.

    `where` is the path that the code works on, for errors. `within` bounds each silence, in seconds. Pass `seal=False`
    for code whose effect is verified anyway and whose literal would cost the board too much memory.
    """
    output = yield from repl.execute(code.encode(), within, sealed=seal and can_seal(repl, capabilities))
    if output.stderr:
        raise own_failure(output.stderr, where=where, platform=capabilities.platform)
    return output.stdout
