"""Sending content to a board in binary, through a loop that runs on it.

The loop reads frames from the board's own input: a length of two bytes, then that many bytes. It writes them to the
open file `_ff` and answers each frame with `A` and the crc32 (4 bytes, little endian) of all that was written so far:
what was stored is checked without a byte more on the way up. Two frames may be on the way, together no more than the
board's receive ring holds: while one is written, and flash may take its time, the other waits there.

No frame holds `\\x03`. Ctrl-C keeps working, for us and for everybody else: a board whose host went away in the middle
of a frame is not lost. `\\x03` and the escape are written as two bytes, and the length as two times seven bits with the
eighth set. For random content that is 1.6 % more on the wire.

A loop that fails keeps reading, so that what is on the way is not taken for code: it answers `E`, and raises when the
host has ended the frames.
"""

from __future__ import annotations

import binascii
from collections import deque
from collections.abc import Iterator

from fastflight.device.capabilities import Capabilities
from fastflight.device.digest import Digest
from fastflight.device.failure import own_failure
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, Fetch, RawRepl, Send

# Erasing a flash sector takes up to a few hundred milliseconds, wear levelling a few of them. A frame that lost bytes
# is never answered.
ACK_SECONDS = 5.0

END_FRAME = b"\x80\x80"
# A length that no frame has: what was written is to be flushed to the storage.
FLUSH_FRAME = b"\xff\xff"
FRAMES_ON_THE_WAY = 2
HEADER_BYTES = 2
# Receive rings of boards, in bytes; a ring holds one less than its size on some.
RINGS = {"esp32": 260, "esp8266": 256, "samd": 128, "nrf": 64}
USUAL_RING = 512
RING_MARGIN = 4

READY = b"R"
WRITTEN = ord("A")
FAILED = ord("E")

RECEIVE = """\
def _fr():
 import sys,binascii
 i=sys.stdin.buffer
 o=sys.stdout.buffer
 b=bytearray({size})
 m=memoryview(b)
 h=bytearray(2)
 c=0
 e=None
 o.write(b'R')
 while 1:
  i.readinto(h)
  n=(h[0]&127)|(h[1]&127)<<7
  if n==0:
   break
  try:
   if n==16383:
    if e is None and hasattr(_ff,'flush'):
     _ff.flush()
   else:
    i.readinto(m[:n])
    if e is None:
     d=bytes(m[:n])
     if b'\\x10' in d:
      d=d.replace(b'\\x10S',b'\\x03').replace(b'\\x10P',b'\\x10')
     if _ff.write(d)!=len(d):
      raise OSError('ENOSPC')
     c=binascii.crc32(d,c)&0xffffffff
  except Exception as x:
   e=x
  o.write(b'A'+c.to_bytes(4,'little') if e is None else b'E')
 if e:
  raise e
_fr()
"""


def send(repl: RawRepl, capabilities: Capabilities, path: str, sent: Digest) -> Conversation[Digest]:
    """Fetch content to its end and have the board write it to its open file; what was sent, in all."""
    frame = frame_bytes(capabilities.platform)
    yield from repl.submit(RECEIVE.format(size=frame).encode())
    ready = yield from repl.inbox.exactly(1, ACK_SECONDS)
    if ready != READY:
        raise ProtocolError(f"the board answered {ready!r} when it was to take a file", where=path)
    written = 0
    expected: deque[int] = deque()
    failed = False
    while not failed and (piece := (yield Fetch())):
        for raw, wire in cut(piece, frame):
            if len(expected) == FRAMES_ON_THE_WAY and (failed := (yield from _refused(repl, expected, path))):
                break
            yield Send(header(len(wire)) + wire)
            sent.add(raw)
            written = binascii.crc32(raw, written)
            expected.append(written)
        else:
            yield Send(FLUSH_FRAME)
            expected.append(written)
        while expected:
            failed = (yield from _refused(repl, expected, path)) or failed
    yield Send(END_FRAME)
    stdout = yield from repl.inbox.until(b"\x04", ACK_SECONDS)
    stderr = yield from repl.inbox.until(b"\x04>", ACK_SECONDS)
    if stderr:
        raise own_failure(stderr, where=path, platform=capabilities.platform)
    if failed or stdout:
        raise _damaged(path)
    return sent


def _refused(repl: RawRepl, expected: deque[int], path: str) -> Conversation[bool]:
    """Read the answer to the oldest frame; whether the board refused it. The code's end then tells why."""
    answer = (yield from repl.inbox.exactly(1, ACK_SECONDS))[0]
    check = expected.popleft()
    if answer == FAILED:
        return True
    if answer != WRITTEN or int.from_bytes((yield from repl.inbox.exactly(4, ACK_SECONDS)), "little") != check:
        raise _damaged(path)
    return False


def taken_by(repl: RawRepl, capabilities: Capabilities) -> bool:
    """Whether a board takes frames. Firmware without raw paste is too old to know its ring by its name."""
    # Nothing interrupts code in the WebAssembly port: a host that goes away in mid-frame would lose the machine.
    able = capabilities.has("stdin.buffer", "stdout.buffer", "binascii.crc32")
    return able and bool(repl.paste) and capabilities.platform != "webassembly"


def frame_bytes(platform: str) -> int:
    """The most that a frame may hold on the wire, so that those on the way fit the board's receive ring."""
    return RINGS.get(platform, USUAL_RING) // FRAMES_ON_THE_WAY - HEADER_BYTES - RING_MARGIN


def cut(content: bytes, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Cut content into frames of at most `size` bytes on the wire: each as it is, and as it is sent."""
    start = 0
    while start < len(content):
        raw = content[start : start + size]
        while len(wire := escaped(raw)) > size:
            # Each byte too many stands for an escape; half of them may go with the bytes that are cut off.
            raw = raw[: len(raw) - max(1, (len(wire) - size) // 2)]
        yield raw, wire
        start += len(raw)


def escaped(data: bytes) -> bytes:
    """`data` without `\\x03`, so that nothing in it interrupts the board."""
    return data.replace(b"\x10", b"\x10P").replace(b"\x03", b"\x10S")


def header(length: int) -> bytes:
    """A frame's length, low part first."""
    return bytes((0x80 | (length & 0x7F), 0x80 | (length >> 7)))


def _damaged(path: str) -> ProtocolError:
    return ProtocolError(
        "what the board took is not what was sent; the old file is untouched",
        where=path,
        hint="Write it again; if it happens often, use a lower speed or a better cable",
    )
