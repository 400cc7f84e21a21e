"""A board whose program runs fastflight's agent: code runs on it as in the raw REPL, and the program goes on.

`AgentRepl` has the methods of `RawRepl`, and others for the file that the agent has open. Code goes to the
agent in frames (`agent_frames`), its output and its traceback come back in frames. All other bytes from the board are
output of its program, and no answer.

The agent answers a frame when the program lets it run: between two steps of an asyncio program, or within 5 ms from a
timer. A lost frame is sent again, but code never runs twice: if its answer is lost, that is a `ProtocolError`. The
agent's file and its position are `fastflight_agent.f` and `fastflight_agent.pos`; code opens the file and sets both.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container
from functools import partial

from fastflight.errors import BusyError, DeviceMemory, ProtocolError, TransportTimeout
from fastflight.protocol import agent_frames as frames
from fastflight.protocol.agent_frames import Frame, FrameReader
from fastflight.protocol.conversation import Conversation, Deliver, Limit, Send
from fastflight.protocol.raw_repl import CTRL_C, MAX_ANSWER_BYTES, MAX_TRACEBACK_BYTES, Output, RawRepl

# An idle agent answers within 20 ms. A program that computes, or waits without asyncio, delays it.
ANSWER_SECONDS = 2.0
ATTEMPTS = 3
# Output of the program without an answer in it, in bytes and in reads: then the answer counts as lost. A program that
# prints without pause would otherwise keep a request waiting for ever.
MAX_OUTPUT_BYTES = 16 * 1024
MAX_OUTPUT_READS = 128
# Frames that are no answer to the last request: those of requests that were broken off. More are not from the agent.
MAX_STRAY_FRAMES = 1024
# How much of the program's output is kept to find out whether the board was reset.
KEPT_OUTPUT_BYTES = 4096
# The longest payload that the agent takes.
MAX_SENT_BYTES = 255


class AgentRepl(RawRepl):
    """The agent of one board."""

    beside = "agent"

    def __init__(self) -> None:
        super().__init__(paste=False)
        # How many unanswered bytes the board's receive ring holds.
        self.window = MAX_SENT_BYTES
        self.platform = ""
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        self._number = 0
        self._skipped = b""
        # How often content was lost on the line and sent again.
        self.losses = 0
        # Code was sent and has not ended.
        self._running = False

    def enter(self, *, attempts: int = 1) -> Conversation[None]:
        """Ask the agent to announce itself. Raise `BusyError` if it does not."""
        self.inbox.clear()
        for _ in range(attempts):
            if (yield from self.reach(ANSWER_SECONDS)):
                return
        raise BusyError(
            "the agent on the board does not answer",
            holder="the board's own program",
            hint="Its program may be busy, or may not run the agent: ask with interrupt=true to stop it",
        )

    def reach(self, within: float) -> Conversation[bool]:
        """Ask the agent to announce itself. Return whether it does, within so many seconds."""
        self.inbox.clear()
        self.entered = (yield from self._hello(within)) is not None
        return self.entered

    def stop(self, within: float) -> Conversation[None]:
        """Ask the agent to leave the input to the board's prompt, and wait for its answer, so many seconds at most."""
        self.inbox.clear()
        yield from self._hello(within, frames.STOP)

    def leave(self) -> Conversation[None]:
        """End the request. Nothing is sent: the agent waits for the next one."""
        self.entered = False
        yield from ()

    def recover(self, grace: float = 0.0) -> Conversation[None]:
        """Reach the idle agent: code that still runs is interrupted. `TransportTimeout` if it does not answer."""
        self.inbox.clear()
        for _ in range(ATTEMPTS):
            if (yield from self._hello()) is not None:
                self._running = False
                self.entered = True
                return
            if self._running:
                # While code runs the agent has the board, so this reaches the code and not the program.
                yield Send(CTRL_C)
                self._running = False
        raise TransportTimeout(
            "the agent on the board does not answer", hint="Ask with interrupt=true, reset it, or plug it in again"
        )

    def soft_reset(self, *, main: bool = True) -> Conversation[None]:
        """Not possible beside a program. Raises `BusyError`."""
        yield from ()
        raise BusyError(
            "a program is running on the board",
            holder="the board's own program",
            hint="Ask with interrupt=true to stop it, or reset the chip",
        )

    def submit(self, code: bytes, *, sealed: bool = False) -> Conversation[None]:
        """Send fastflight's own `code`. Its output comes next: call `output` or `deliver`.

        `sealed` adds nothing: each frame has a checksum.
        """
        yield from self._submit(code, frames.RUN_OWN)

    def submit_in_program(self, code: bytes) -> Conversation[None]:
        """As `submit`, for code that runs among the global names of the board's program."""
        yield from self._submit(code, frames.RUN)

    def _submit(self, code: bytes, kind: int) -> Conversation[None]:
        for attempt in range(ATTEMPTS):
            size = min(self.window // 2, MAX_SENT_BYTES)
            pieces = [code[start : start + size] for start in range(0, len(code), size)] or [b""]
            try:
                for piece in pieces[:-1]:
                    yield from self._request(frames.CODE, piece)
                self._running = True
                yield from self._request(kind, pieces[-1])
                return
            except (TransportTimeout, ProtocolError):
                last = self._number
                ran = yield from self._hello()
                if ran is None or ran == last or attempt == ATTEMPTS - 1:
                    raise

    def send_code(self, code: bytes) -> Conversation[None]:
        """Send `code`, which resets the board: no answer is awaited."""
        yield from self.submit(code)

    def output(self, within: float) -> Conversation[Output]:
        """Collect the output of code that `submit` has sent. `within` is the longest silence, in seconds."""
        pieces: list[bytes] = []
        stderr = yield from self._collect(within, pieces)
        return Output(b"".join(pieces), stderr)

    def deliver(self, within: float) -> Conversation[bytes]:
        """Deliver the output of code that `submit` has sent. Return the traceback, empty if the code raised nothing."""
        return (yield from self._collect(within, None))

    def _collect(self, within: float, pieces: list[bytes] | None) -> Conversation[bytes]:
        count = 0
        while True:
            frame = yield from self._answer(within)
            if frame.kind == frames.OUTPUT:
                count += len(frame.payload)
                if pieces is None:
                    yield Deliver(frame.payload)
                elif count <= MAX_ANSWER_BYTES:
                    pieces.append(frame.payload)
            elif frame.kind == frames.ENDED:
                self._running = False
                if int.from_bytes(frame.payload[:4], "little") != count:
                    raise _lost("a part of the output was lost on the line")
                return frame.payload[4 : MAX_TRACEBACK_BYTES + 4]

    def write(self, position: int, data: bytes, size: int) -> Conversation[bytes]:
        """Write `data` to the agent's file at `position`, in blocks of at most `size` bytes.

        Return the traceback if that failed, else nothing. `ProtocolError` if too much is lost on the line.
        """
        sent = done = lost = 0
        # For each frame that is not acknowledged: its number, its size on the line, and where its content ends.
        flight: deque[tuple[int, int, int]] = deque()
        while done < len(data):
            while sent < len(data):
                block = data[sent : sent + size]
                number = (self._number + 1) % 256
                wire = frames.to_board(frames.WRITE, number, (position + sent).to_bytes(4, "little") + block)
                if flight and sum(each[1] for each in flight) + len(wire) > self.window:
                    break
                self._number = number
                sent += len(block)
                flight.append((number, len(wire), sent))
                yield Send(wire)
            try:
                # Skips answers to frames that were sent again.
                frame = yield from self._frame(ANSWER_SECONDS, partial(_answers, {each[0] for each in flight}))
                if frame.kind == frames.ENDED:
                    return frame.payload[4:]
                end = 0
                while flight and flight[0][0] != frame.number:
                    flight.popleft()
                end = flight.popleft()[2]
                reached = int.from_bytes(frame.payload[:4], "little") - position
                if done < reached <= end:
                    done, lost = reached, 0
                if reached != end:
                    raise _lost("content was lost on the line")
            except (TransportTimeout, ProtocolError):
                lost += 1
                if lost >= ATTEMPTS:
                    raise
                self.losses += 1
                flight.clear()
                sent = done
        return b""

    def ask_for(self, count: int, size: int) -> Conversation[None]:
        """Ask for the next `count` bytes of the agent's file, in blocks of `size` bytes. Call `content` for each."""
        self._number = (self._number + 1) % 256
        yield Send(frames.to_board(frames.READ, self._number, count.to_bytes(4, "little") + size.to_bytes(2, "little")))

    def content(self, position: int, most: int) -> Conversation[tuple[bytes, bytes]]:
        """Return the next block of the file, of `most` bytes at most, and the traceback if reading failed.

        The block is at `position`. It is empty at the end of the file.
        """
        frame = yield from self._answer(ANSWER_SECONDS)
        if frame.kind == frames.ENDED:
            return b"", frame.payload[4:]
        if int.from_bytes(frame.payload[:4], "little") != position:
            raise _lost("content was lost on the line")
        if len(frame.payload) - 4 > most:
            raise ProtocolError("the board sent more than it was asked for", hint="Install the agent again")
        return frame.payload[4:], b""

    def _hello(self, within: float = ANSWER_SECONDS, request: bytes = frames.HELLO) -> Conversation[int | None]:
        """Ask for the announcement. Return the number of the last frame that the agent received, None if it is silent.

        The agent forgets the pieces of code that it has not run.
        """
        yield Send(request)
        # In all: a program that prints is never silent.
        yield Limit(within)
        try:
            frame = yield from self._frame(within, lambda each: each.kind == frames.ANNOUNCEMENT)
        except (TransportTimeout, ProtocolError):
            yield Limit(math.inf)
            return None
        yield Limit(math.inf)
        self._frames.clear()
        self._number = frame.number
        self.platform = frame.payload.decode("ascii", "replace").rpartition(" ")[2]
        return frame.number

    def _request(self, kind: int, payload: bytes) -> Conversation[None]:
        """Send a piece of code, and wait until the agent has it."""
        self._number = (self._number + 1) % 256
        yield Send(frames.to_board(kind, self._number, payload))
        if (yield from self._answer(ANSWER_SECONDS)).kind != frames.ACKNOWLEDGED:
            raise DeviceMemory(
                "the board has no memory for the code", hint="Send less, or soft-reset it to free its heap"
            )

    def _answer(self, within: float) -> Conversation[Frame]:
        """Return the next answer to the last frame that was sent."""
        return (
            yield from self._frame(
                within, lambda each: each.number == self._number and each.kind != frames.ANNOUNCEMENT
            )
        )

    def _frame(self, within: float, fits: Callable[[Frame], bool]) -> Conversation[Frame]:
        """Return the next frame that `fits`. Skip other frames and the output of the program before it."""
        for _ in range(MAX_STRAY_FRAMES):
            if fits(frame := (yield from self._next_frame(within))):
                return frame
        raise ProtocolError("the board sends frames, and no answer", hint="Reset it, or plug it in again")

    def _next_frame(self, within: float) -> Conversation[Frame]:
        skipped = reads = 0
        while not self._frames:
            for each in self._reader.feed((yield from self.inbox.some(within))):
                if isinstance(each, Frame):
                    self._frames.append(each)
                else:
                    reads += 1
                    skipped += len(each)
                    self._skipped = (self._skipped + each)[-KEPT_OUTPUT_BYTES:]
            if not self._frames and (skipped > MAX_OUTPUT_BYTES or reads > MAX_OUTPUT_READS):
                raise TransportTimeout("the program prints, and the agent on the board does not answer")
        return self._frames.popleft()

    def restarted(self) -> bool:
        """Return whether the output of the program shows that the board restarted."""
        self.inbox.put_back(self._skipped)
        result = super().restarted()
        self.inbox.take()
        return result


def _answers(numbers: Container[int], frame: Frame) -> bool:
    return frame.number in numbers


def _lost(what: str) -> ProtocolError:
    return ProtocolError(what, hint="Try again; if it happens often, use a lower speed or a better cable")
