"""Reading a file from a board, as a conversation that delivers its bytes in order.

A loop on the board sends blocks. In the binary form a block is `\\x01`, its length (2 bytes), its crc32 (4 bytes), both
little endian, and its bytes; a board without a raw output stream prints a line for each, the sum and the `repr` of the
bytes. What is delivered has been checked. The loop ends like any other piece of code, with `\\x04`: no byte of the file
can be taken for the end.
"""

from __future__ import annotations

import ast
import binascii
import struct

from fastflight.device.capabilities import Capabilities
from fastflight.device.failure import own_failure
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, Deliver, RawRepl

# A flash read between two blocks takes milliseconds; garbage collection on a large heap a few hundred.
STALL_SECONDS = 10.0

# What is delivered at once, when that much has come.
PIECE_BYTES = 64 * 1024

HEADER = struct.Struct("<BHI")
BLOCK = 0x01
END = 0x04

BINARY = """\
def _ff(k,o):
 import sys,struct,binascii
 w=sys.stdout.buffer.write
 b=bytearray({size}+7)
 m=memoryview(b)
 d=m[7:]
 f=open({path!r},'rb')
 if o:
  f.seek(o)
 try:
  while k:
   k-=1
   n=f.readinto(d)
   if not n:
    break
   struct.pack_into('<BHI',b,0,1,n,binascii.crc32(d[:n])&0xffffffff)
   w(m[:n+7])
 finally:
  f.close()
_ff({blocks},{offset})
"""
TEXT = """\
def _ff(k,o):
 f=open({path!r},'rb')
 if o:
  f.seek(o)
 try:
  while k:
   k-=1
   d=f.read({size})
   if not d:
    break
   print(sum(d),repr(d))
 finally:
  f.close()
_ff({blocks},{offset})
"""

# What a line of the text form may hold: four characters a byte, the sum, and the quotes.
LINE_LIMIT = 4 * 2048 + 64


def download(
    repl: RawRepl, capabilities: Capabilities, path: str, offset: int = 0, limit: int | None = None
) -> Conversation[None]:
    """Deliver the bytes of the file at `path`, or its first `limit`. `ProtocolError` when a block was changed."""
    binary = capabilities.has("stdout.buffer", "binascii.crc32", "struct.pack_into")
    size = capabilities.block_bytes
    # The loop counts down to zero: from below it, it never gets there.
    blocks = -1 if limit is None else max(1, limit // size)
    code = (BINARY if binary else TEXT).format(path=capabilities.spelled(path), size=size, blocks=blocks, offset=offset)
    yield from repl.submit(code.encode())
    block = _binary_block if binary else _text_block
    checked = bytearray()
    while (mark := (yield from repl.inbox.exactly(1, STALL_SECONDS))[0]) != END:
        checked += yield from block(repl, mark, path)
        # On a fast line many blocks are here already: fewer, larger pieces are cheaper for all that follows.
        if len(checked) >= PIECE_BYTES or len(repl.inbox) <= size + HEADER.size:
            yield Deliver(bytes(checked))
            checked.clear()
    if checked:
        yield Deliver(bytes(checked))
    stderr = yield from repl.inbox.until(b"\x04>", STALL_SECONDS)
    if stderr:
        raise own_failure(stderr, where=path, platform=capabilities.platform)


def _binary_block(repl: RawRepl, mark: int, path: str) -> Conversation[bytes]:
    head = bytes([mark]) + (yield from repl.inbox.exactly(HEADER.size - 1, STALL_SECONDS))
    mark, length, check = HEADER.unpack(head)
    if mark != BLOCK:
        raise _damaged(path)
    data = yield from repl.inbox.exactly(length, STALL_SECONDS)
    if binascii.crc32(data) != check:
        raise _damaged(path)
    return data


def _text_block(repl: RawRepl, mark: int, path: str) -> Conversation[bytes]:
    line = bytes([mark]) + (yield from repl.inbox.until(b"\n", STALL_SECONDS, LINE_LIMIT))
    check, _, literal = line.decode("utf-8", "replace").strip().partition(" ")
    try:
        data = ast.literal_eval(literal)
        intact = isinstance(data, bytes) and sum(data) == int(check)
    except (ValueError, SyntaxError):
        intact = False
    if not intact:
        raise _damaged(path)
    return bytes(data)


def _damaged(path: str) -> ProtocolError:
    return ProtocolError(
        "a block of the file was changed or lost on the line, or the board printed something in between",
        where=path,
        hint="Read it again; if it happens often, use a lower speed or a better cable",
    )
