"""Runs a short piece of fastflight's own code on a board and returns its output, or raises its traceback as an error.

A serial line may change a byte of the code, and neither the raw REPL nor raw paste notices: a changed path is still a
valid path. So code is sealed: it is sent as a literal together with its crc32, and the board runs it only if it
computes the same crc32. Boards without crc32 get the plain code. So do boards without raw paste: they receive code in
pieces as literals, and a literal within a literal would be too long.
"""

from __future__ import annotations

import binascii

from fastflight.device.answers import own_failure
from fastflight.device.capabilities import Capabilities
from fastflight.protocol import Conversation, RawRepl

# `SyntaxError` is one of the exceptions that mean damaged code (`answers.GARBLED`). `FORGET` goes in front of the code
# in the literal: it drops the literal, to save memory.
SEALED = """\
import binascii
_c={code!r}
if binascii.crc32(_c)!={crc32}:raise SyntaxError
exec(_c)
"""
FORGET = b"del _c\n"
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


def seal_code(repl: RawRepl, capabilities: Capabilities, code: str) -> bytes:
    """Return `code` in the form to send to this board: sealed if the board can check it, else plain."""
    if not can_seal(repl, capabilities):
        return code.encode()
    content = FORGET + code.encode()
    return SEALED.format(code=content, crc32=binascii.crc32(content)).encode()


def execute(
    repl: RawRepl, capabilities: Capabilities, code: str, where: str, within: float, *, seal: bool = True
) -> Conversation[bytes]:
    """Run a short piece of code and return its output. If the board prints a traceback, raise the error for it.

    `where` is the path that the code works on, for errors. `within` bounds each silence, in seconds. Pass `seal=False`
    for code whose effect is verified anyway and whose literal would cost the board too much memory.
    """
    output = yield from repl.execute(seal_code(repl, capabilities, code) if seal else code.encode(), within)
    if output.stderr:
        raise own_failure(output.stderr, where=where, platform=capabilities.platform)
    return output.stdout
