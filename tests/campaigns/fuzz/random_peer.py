"""A board, or a server, that answers as the bytes say: anything from what fits to nothing at all.

A conversation is carried out against it to its end. When the bytes are used up the peer is silent for good, and the
conversation must end soon after: whatever a peer says, nobody waits for it for ever.
"""

from __future__ import annotations

import math
import re
import struct
from binascii import crc32
from collections.abc import Callable
from typing import TypeVar

from fastflight.errors import TransportClosed, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Fetch, Limit, Pause, Receive, Send, Step
from fastflight.protocol.raw_repl import BANNER
from tests.campaigns.fuzz.material import Material

T = TypeVar("T")

# Steps after the peer's last word: the most patient conversation, a long upload to a silent board, takes far fewer.
MOST_STEPS_IN_SILENCE = 10_000

_NUMBERS = re.compile(rb"[0-9]+")
# What a script never prints, where a number should be.
ODD = (
    b"1e999",
    b"9" * 400,
    b"9" * 5000,
    b"-1",
    b"10**9",
    b"9999999999",
    b"None",
    b"'x'",
    b"[]",
    b"1j",
    b"(((",
    b"\\xff",
)
_TOKEN = re.compile(rb"print\('(ff[^']*)',end=''\)")

# Given what was sent since the last answer and what is left to choose from, what the peer says.
Fitting = Callable[[bytes, Material], bytes]


def converse(conversation: Conversation[T], material: Material, fitting: Fitting) -> T:
    """The result of `conversation` with the peer; what it raises comes out as it is."""
    sent = bytearray()
    silent_steps = 0
    closed = False
    try:
        step: Step = next(conversation)
        while True:
            if not material:
                silent_steps += 1
                assert silent_steps < MOST_STEPS_IN_SILENCE, "it does not end"
            answer: bytes | Exception = b""
            match step:
                case Send(data):
                    sent += data
                case Receive(within):
                    assert 0 < within < math.inf
                    answer = _answer(bytes(sent), material, fitting)
                    sent.clear()
                case Fetch():
                    answer = material.piece() * material.byte()
                case Pause() | Limit() | Deliver():
                    pass
            closed = closed or isinstance(answer, TransportClosed)
            if closed and isinstance(step, Send | Receive):
                answer = TransportClosed("the line was closed")
            step = conversation.throw(answer) if isinstance(answer, Exception) else conversation.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _answer(sent: bytes, material: Material, fitting: Fitting) -> bytes | Exception:
    if not material:
        return TransportTimeout("nothing came")
    kind = material.byte()
    if kind < 0x60:
        return fitting(sent, material) or b"\r"
    if kind < 0xC0:
        return material.take(kind - 0x5F) or b"\0"
    if kind < 0xF0:
        return material.pick(WORDS)
    return TransportClosed("the line was closed") if kind == 0xFF else TransportTimeout("nothing came")


# What means something where a board says it.
WORDS = (
    b"\x04", b"\x04\x04>", b">", b"OK", b"R", b"R\x01", b"R\x01\x20\x00", b"\x01", b"A", b"E", b".", b"D", b"\r\n",
    b"\n", BANNER + b">", b"MicroPython v1.27\r\n>>> ", b"soft reboot\r\n", b"MemoryError", b"OSError: ", b"28",
    b"ENOENT", b"Traceback (most recent call last):\r\n", b"NameError: ", b"\x01\x00\x00\x00\x00\x00\x00",
)  # fmt: skip


def board(sent: bytes, material: Material) -> bytes:
    """What a MicroPython board says to what it was sent; its output and its tracebacks are what the bytes say."""
    if token := _TOKEN.search(sent):
        return b"OK" + token[1] + b"\x04\x04>"
    if sent.endswith(b"\x05A\x01"):
        return b"R\x01" + struct.pack("<H", 1 << material.byte() % 16)
    if sent.endswith(b"\x01"):
        return BANNER + b">"
    start = material.pick((b"OK", b"\x04", b"", b"A", b"R", b"\x01", b"\x04R"))
    stdout = material.pick((b"", b"", *SAYS.values()))
    if not stdout:
        stdout = material.piece()
    elif odd := material.pick((b"", b"", *ODD)):
        # Every number of what a board says may be something else.
        number = material.pick(_NUMBERS.findall(stdout))
        stdout = stdout.replace(number, odd)
    if material.byte() & 1:
        # A block of a file, with a check that fits.
        content = material.piece()
        stdout = b"R" + struct.pack("<BHI", 1, len(content), crc32(content)) + content
        stdout += struct.pack("<BHI", 1, 0, crc32(content))
    stderr = material.pick((b"", b"", b"", b"OSError: " + material.take(4), b"MemoryError: ", material.piece()))
    return start + stdout + b"\x04" + stderr + b"\x04>"


FEATURES = (
    b"hashlib.sha256\r\nbinascii.crc32\r\nbinascii.a2b_base64\r\nos.ilistdir\r\nos.stat\r\nos.rename\r\nos.mkdir\r\n"
    b"os.statvfs\r\nstruct.pack_into\r\ndeflate.DeflateIO\r\n"
    b"stdin.buffer\r\nstdout.buffer\r\nstdin.poll\r\n"
    b"platform='rp2'\r\nfree_memory=180000\r\nepoch=1970\r\nunique_id=b'\\x01'\r\n"
)
# What scripts of ours print on a board.
SAYS = {
    "features": FEATURES + b"crc32=%d\r\n" % crc32(FEATURES.replace(b"\r", b"")),
    "entries": b"('a',32768,5,0)\r\n('lib',16384,0,1700000000)\r\n",
    "entry": b"('',32768,5,1700000000)\r\n",
    "sizes": b"(1441792, 1000000)\r\n",
    "hashes": b"R.('/a',5,b'" + b"\\x01" * 32 + b"')\r\n",
}
