"""What goes to one client of the relay: every byte once and in order, and each buffer back when nothing shows it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.gateway.relay.outgoing import Buffers, RelayOutgoing

BUFFER_BYTES = 16


class Socket:
    """Takes as many bytes at a time as it is told: none is a full socket, -1 a client that is gone."""

    def __init__(self) -> None:
        self.room = 0
        self.got = bytearray()

    def sendmsg(self, views: Sequence[bytes | memoryview]) -> int:
        if self.room < 0:
            raise OSError(errno.EPIPE, "gone")
        if not self.room:
            raise BlockingIOError
        taken = b"".join(views)[: self.room]
        self.room -= len(taken)
        self.got += taken
        return len(taken)


class Lent(Buffers):
    """Buffers that know who has them."""

    def __init__(self) -> None:
        super().__init__(BUFFER_BYTES)
        self.out: list[bytearray] = []

    def take(self) -> bytearray:
        self.out.append(buffer := super().take())
        return buffer

    def give(self, buffer: bytearray) -> None:
        self.out = [each for each in self.out if each is not buffer]
        # Whoever has it next writes into it: nothing of ours may show what was there.
        buffer[:] = b"!" * len(buffer)
        super().give(buffer)


class SocketLoop:
    """Whether the socket is waited for, and what is to be called when it takes more."""

    def __init__(self) -> None:
        self.writable: Callable[[], None] | None = None
        self.soon: list[Callable[[], None]] = []

    def add_writer(self, _: object, callback: Callable[[], None]) -> None:
        assert self.writable is None
        self.writable = callback

    def remove_writer(self, _: object) -> None:
        assert self.writable is not None
        self.writable = None

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)


FRAME = st.tuples(st.integers(0, 4), st.integers(0, BUFFER_BYTES))
STEPS = st.lists(FRAME | st.integers(0, 40) | st.sampled_from(["gone", "close"]), max_size=30)


@settings(deadline=None)
@given(STEPS)
def test_any_order_of_frames_room_and_ends(steps: list[Any]) -> None:
    async def main() -> None:
        sock, buffers, loop = Socket(), Lent(), SocketLoop()
        told = {"drained": 0, "lost": 0}

        def count(what: str) -> Callable[[], None]:
            return lambda: told.__setitem__(what, told[what] + 1)

        outgoing = RelayOutgoing(cast(Any, sock), buffers, count("drained"), count("lost"))
        outgoing._loop = cast(Any, loop)
        expected = bytearray()
        over = False
        for number, step in enumerate(steps):
            if step == "close":
                outgoing.close()
                over = True
            elif step == "gone":
                sock.room = -1
            elif isinstance(step, tuple):
                head, size = bytes([number]) * step[0], step[1]
                buffer = buffers.take()
                buffer[:size] = bytes([128 + number]) * size
                if not over:
                    expected += head + buffer[:size]
                outgoing.send(head, memoryview(buffer)[:size], buffer)
            elif sock.room >= 0:
                sock.room += step
            while loop.writable is not None and sock.room:
                loop.writable()
            while loop.soon:
                loop.soon.pop()()
                over = True
            assert expected.startswith(sock.got)
            assert outgoing.size == (0 if over else len(expected) - len(sock.got))
            assert (loop.writable is not None) == bool(outgoing.frames)
            if not over:
                # A frame that waits holds one buffer at most, and one that is gone none.
                assert len(buffers.out) <= outgoing.frames
        assert told["lost"] <= 1

    asyncio.run(main())
