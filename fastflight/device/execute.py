"""Runs a short piece of our own code on a board and returns its output, or raises its traceback as a typed error.

A serial line may change a byte of the code, and neither the raw REPL nor raw paste would notice: a changed path is a
valid path. So code is sealed: sent as a literal beside its crc32, and run when the board computes the same crc32.
Boards without crc32 get the code as it is. So do boards without raw paste: they receive code in pieces as literals, and
a literal within a literal would be too long.
"""

from __future__ import annotations

import binascii

from fastflight.device.answers import own_failure
from fastflight.device.capabilities import Capabilities
from fastflight.protocol import Conversation, RawRepl

# What only wrong code raises (`failure.GARBLED`). The literal is given up by the code itself, for its memory.
SEALED = """\
import binascii
_c={code!r}
if binascii.crc32(_c)!={crc32}:raise SyntaxError
exec(_c)
"""
FORGET = b"del _c\n"


def seals(repl: RawRepl, capabilities: Capabilities) -> bool:
    """Whether the board can tell that code arrived as it was sent."""
    return bool(repl.paste) and capabilities.has("binascii.crc32")


def sealed(repl: RawRepl, capabilities: Capabilities, code: str) -> bytes:
    """`code` as it is to be sent to a board that can do so much."""
    if not seals(repl, capabilities):
        return code.encode()
    content = FORGET + code.encode()
    return SEALED.format(code=content, crc32=binascii.crc32(content)).encode()


def execute(
    repl: RawRepl, capabilities: Capabilities, code: str, where: str, within: float, *, seal: bool = True
) -> Conversation[bytes]:
    """Run a short piece of code that works on `where`; its output, or the typed error for its traceback.

    Without `seal` for code whose effect is verified by itself, where a literal of it would cost too much memory.
    """
    output = yield from repl.execute(sealed(repl, capabilities, code) if seal else code.encode(), within)
    if output.stderr:
        raise own_failure(output.stderr, where=where, platform=capabilities.platform)
    return output.stdout
