"""Writing one short file by code that is run once (`routines.ONCE`), where the routines are not installed yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from fastflight.device import routines
from fastflight.device.execute import sealed
from fastflight.device.failure import routine_failure
from fastflight.device.frames import escaped
from fastflight.device.link import Link
from fastflight.device.parts import Unfinished
from fastflight.device.resident import START_SECONDS, sha256
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, Send

# The board reads a file back in one go, and installing the routines takes about as many bytes.
MOST_BYTES = 3000
# Free heap with which it has room for that.
HEAP_BYTES = 20_000
# Who writes more short files than this over one line is better served by routines that stay.
MOST_TIMES = 1
LENGTH_BYTES = 3
ON_THE_WAY = 2


def start(link: Link, unfinished: Unfinished) -> Conversation[None]:
    """Run the code; it takes lots then."""
    code = routines.ONCE.format(
        path=link.capabilities.spelled(unfinished.path),
        part=link.capabilities.spelled(unfinished.part),
        **(routines.ONCE_SHA256 if sha256(link.capabilities) else routines.ONCE_CRC32),
    )
    yield from link.repl.submit(sealed(link.repl, link.capabilities, code))
    yield from _expect(link, b"R", START_SECONDS, unfinished.path)


def send(link: Link, piece: bytes, where: str) -> Conversation[None]:
    """Send one piece, all of it answered in the end."""
    size = link.window // ON_THE_WAY - LENGTH_BYTES
    waiting: deque[int] = deque()
    for wire in lots(piece, size):
        if len(waiting) == ON_THE_WAY:
            yield from _expect(link, b"A", link.patience(waiting.popleft(), True), where)
        yield Send(length(len(wire)) + wire)
        waiting.append(len(wire))
    while waiting:
        yield from _expect(link, b"A", link.patience(waiting.popleft(), True), where)


def finish(link: Link, where: str) -> Conversation[str]:
    """End the content; the digest that the board took of it, which waits for a word."""
    yield Send(length(0))
    yield from _expect(link, b"A", link.patience(0, True), where)
    size = 32 if sha256(link.capabilities) else 4
    return (yield from link.repl.inbox.exactly(size, link.patience(size, True))).hex()


def lots(piece: bytes, size: int) -> Iterator[bytes]:
    """Cut a piece into parts that are written in at most `size` bytes each; no escape is cut."""
    start = 0
    while start < len(piece):
        raw = piece[start : start + size]
        while len(wire := escaped(raw)) > size:
            # Each byte too many stands for an escape; half of them may go with the bytes that are cut off.
            raw = raw[: len(raw) - max(1, (len(wire) - size) // 2)]
        yield wire
        start += len(raw)


def length(count: int) -> bytes:
    """What stands before a lot of so many bytes, in as many digits as the least code reads."""
    return b"%03d" % count


def _expect(link: Link, answer: bytes, within: float, where: str) -> Conversation[None]:
    got = yield from link.repl.inbox.exactly(1, within)
    if got == answer:
        return
    if got == b"\x04":
        stderr = yield from link.repl.inbox.until(b"\x04>", within)
        # What was on the way is code to the board by now.
        yield from link.repl.recover()
        raise routine_failure(stderr, where=where, platform=link.capabilities.platform)
    link.repl.inbox.put_back(got)
    raise ProtocolError(f"the board answered {got!r} to a part of a file", where=where)
