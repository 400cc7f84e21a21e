"""Sending content to a board as code: for boards that cannot take it in binary.

Each block is a statement that writes it to the open file `_ff`, as base64 or as a literal, and prints how much it
wrote.
"""

from __future__ import annotations

import binascii

from fastflight.device.capabilities import Capabilities
from fastflight.device.digest import Digest
from fastflight.device.execute import execute
from fastflight.errors import DeviceFull
from fastflight.protocol import Conversation, Fetch, RawRepl

# Erasing a flash sector takes up to a few hundred milliseconds, wear levelling a few of them.
WRITE_SECONDS = 15.0

BLOCK_BASE64 = "import binascii\nprint(_ff.write(binascii.a2b_base64({data!r})))\n"
BLOCK_LITERAL = "print(_ff.write({data!r}))"
FLUSH = "if hasattr(_ff,'flush'):\n _ff.flush()\n"


def send(repl: RawRepl, capabilities: Capabilities, path: str, sent: Digest) -> Conversation[Digest]:
    """Fetch content to its end and have the board write it to its open file; what was sent, in all."""
    size = capabilities.block_bytes
    base64 = capabilities.has("binascii.a2b_base64")
    while piece := (yield Fetch()):
        for start in range(0, len(piece), size):
            block = piece[start : start + size]
            code = (
                BLOCK_BASE64.format(data=binascii.b2a_base64(block, newline=False))
                if base64
                else BLOCK_LITERAL.format(data=block)
            )
            answer = yield from execute(repl, capabilities, code, path, WRITE_SECONDS)
            if answer.strip() != str(len(block)).encode():
                raise DeviceFull(
                    f"the board wrote {answer.strip().decode(errors='replace')} of {len(block)} bytes",
                    where=path,
                    hint="Its storage is full: remove files you do not need",
                )
            sent.add(block)
        yield from execute(repl, capabilities, FLUSH, path, WRITE_SECONDS)
    return sent
