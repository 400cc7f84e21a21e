"""MicroPython's raw REPL, as conversations.

The wire format is that of MicroPython's `docs/reference/repl.rst`: Ctrl-A asks for the raw REPL, which answers with a
banner and a prompt. The host sends code and Ctrl-D. The board acknowledges the code with `OK`, then sends the output,
`\\x04`, the traceback (or nothing), and `\\x04>`. Ctrl-B returns to the friendly REPL, Ctrl-C interrupts running code.

`RawRepl` holds the state of one board's REPL. Its methods are conversations, except `restarted`. After one that fails
or is closed early, the board's state is unknown: run `recover` before any other.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fastflight import own_code
from fastflight.errors import BusyError, DeviceMemory, ProtocolError, TransportTimeout
from fastflight.protocol import raw_paste
from fastflight.protocol.conversation import Conversation, Deliver, Limit, Pause, Send
from fastflight.protocol.inbox import Inbox
from fastflight.protocol.traffic import END, HEADING, Traffic

CTRL_A = b"\x01"
CTRL_B = b"\x02"
CTRL_C = b"\x03"
CTRL_D = b"\x04"

BANNER = HEADING + b"\r\n"
PROMPT = BANNER + b">"
FRIENDLY_PROMPT = b">>> "
SOFT_REBOOT = b"soft reboot\r\n"
# The first part of the line that a board prints when it starts.
NAME = b"MicroPython v"
RESTARTS = (b"MPY: " + SOFT_REBOOT, b"PYB: " + SOFT_REBOOT)

# The holder of a board whose program runs.
PROGRAM = "the board's own program"
# The most bytes, Ctrl-D included, to send without waiting for an answer. Plain raw mode has no flow control, and the
# smallest receive ring, the micro:bit's, holds 63 bytes. A busy board may lose any bytes beyond that, however slowly
# they are sent: only an answer shows that the ring has room.
PLAIN_BYTES = 63
# A board at its prompt answers within milliseconds; the rest allows for flash housekeeping and slow links.
ANSWER_SECONDS = 1.0
# Allows for boot, mounting the file system and boot.py after a soft reset.
REBOOT_SECONDS = 10.0
RECOVERY_ATTEMPTS = 2
# What a program gets to clean up (`finally:`) after Ctrl-C, before more Ctrl-C would interrupt its cleaning up.
GRACE_SECONDS = 3.0
# A wait for the raw REPL is divided into these: a prompt that does not answer to Ctrl-A gets another one.
STEP_SECONDS = 0.25
# For code that catches a Ctrl-C: one a millisecond, because a board keeps only one that it has not handled yet. On the
# unix port, Ctrl-C does not interrupt code that reads its input: a transfer routine that waits for the rest of a step
# reads it as a data byte. These fill the longest step, a third of a 512-byte ring, and end it.
BURST_BYTES = 600
BURST_PAUSE_SECONDS = 0.001
# How much of the output before a prompt is kept to find that prompt.
MAX_SEARCHED_BYTES = 512
# A traceback longer than this is output that happens to hold the end marker.
MAX_TRACEBACK_BYTES = 64 * 1024
# The longest single answer; streamed output has no limit.
MAX_ANSWER_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a piece of code, and the board's traceback (empty if the code raised nothing)."""

    stdout: bytes
    stderr: bytes


class RawRepl:
    """One board's raw REPL.

    `entered` is true while the board is in the raw REPL, as far as the host knows. `paste` tells whether raw paste
    works; it is None until the first code is submitted.
    """

    # What lets the board's program go on during requests: nothing here, `aiorepl` or `agent` in subclasses.
    beside = "none"

    def __init__(self, paste: bool | None = None) -> None:
        self.inbox = Inbox()
        # Tells the answers from what a program prints: that of the line, for the tap of the line.
        self.traffic = Traffic()
        self.entered = False
        self.paste = paste
        # Whether raw paste is receiving fastflight's own code, of which the board runs nothing before the end.
        self.is_pasting = False
        # Whether an answer missed its deadline. It may still arrive, and look like the answer to a later request.
        self._late_answer = False
        self._echoes = 0
        # What the board sent before it answered to the last Ctrl-A.
        self.before = b""

    def find_prompt(self, found: re.Pattern[bytes], within: float) -> Conversation[bytes]:
        """Send Ctrl-B, and wait until the board sends what matches `found`. Return the end of what it sent.

        Return nothing if that takes more than `within` seconds in all.

        The friendly REPL answers with its banner, and so does the raw REPL, which Ctrl-B leaves. If a program runs, and
        ends later, its prompt reads the Ctrl-B and stays at the prompt.
        """
        self.inbox.clear()
        self.traffic.leave()
        yield Send(CTRL_B)
        yield Limit(within)
        answer = b""
        try:
            while not found.search(answer):
                answer = answer[-MAX_SEARCHED_BYTES:] + (yield from self.inbox.some(within))
        except TransportTimeout:
            yield Limit(math.inf)
            return b""
        yield Limit(math.inf)
        return answer

    def enter(self, *, attempts: int = 1) -> Conversation[None]:
        """Enter the raw REPL from the prompt: send Ctrl-A, so many times, then Ctrl-B if none is answered.

        Leave a running program alone: raise `BusyError` if the board does not answer at its prompt.
        """
        self.inbox.clear()
        for attempt in range(1, attempts + 1):
            yield Send(CTRL_A)
            # In all: a program that prints is never silent.
            yield Limit(ANSWER_SECONDS)
            try:
                self.before = yield from self.inbox.until(HEADING, ANSWER_SECONDS)
                yield Limit(math.inf)
                yield from self.inbox.until(b"\n>", ANSWER_SECONDS)
                if self._late_answer:  # each Ctrl-A has its banner: this one may answer an earlier Ctrl-A
                    yield from self._echo()
                self.entered = True
                return
            except (TransportTimeout, ProtocolError) as error:
                yield Limit(math.inf)
                self._late_answer = True
                if attempt < attempts:
                    continue
                # If the program ends later and reads the Ctrl-A, this returns the board to the friendly prompt.
                yield Send(CTRL_B)
                raise no_prompt() from error

    def _echo(self) -> Conversation[None]:
        """Have the board print a unique token, and drop everything up to it: older banners and answers come before."""
        self._echoes += 1
        token = f"{self._echoes & 0xFFF:03x}-{id(self) & 0xFFFFFF:06x}"
        # No line end: some ports convert it to CRLF, others do not.
        yield Send(own_code.ECHO.format(token=token).encode() + CTRL_D)
        yield from self.inbox.until(f"OK{token}\x04\x04>".encode(), ANSWER_SECONDS)
        self._late_answer = False

    def leave(self) -> Conversation[None]:
        """Return to the friendly REPL. Does not wait for its banner: the next `enter` skips that."""
        self.entered = False
        self.traffic.leave()
        yield Send(CTRL_B)

    def recover(self, grace: float = 0.0) -> Conversation[None]:
        """Reach the raw REPL from any state: interrupt, enter, and drop old output up to an echo.

        A user's code gets one Ctrl-C and `grace` seconds to clean up. Code of fastflight has nothing to clean up
        (`grace` 0): it gets another one, because the prompt may read the rest of its input as a line. What follows is
        a burst of Ctrl-C, and one as fast as the line is. Nothing comes before the first Ctrl-C: a ring may have only
        one place left.

        Raises `TransportTimeout` if the board does not answer.
        """
        last: Exception | None = None
        for attempt in range(1 + RECOVERY_ATTEMPTS):
            self.inbox.clear()
            if attempt == 0:
                yield Send(CTRL_C)
                yield Pause(0.01)
                if not grace:
                    yield Send(CTRL_C)
            else:
                yield from self._burst(0.0 if attempt == RECOVERY_ATTEMPTS else BURST_PAUSE_SECONDS)
            yield Send(CTRL_A)
            try:
                yield from self._await_heading(ANSWER_SECONDS if attempt or not grace else grace)
                yield from self.inbox.until(b"\n>", ANSWER_SECONDS)
                yield from self._echo()
                self.entered, self.is_pasting = True, False
                return
            except (TransportTimeout, ProtocolError) as error:
                self._late_answer = True
                last = error
        raise TransportTimeout(
            "the program on the board does not end: it catches KeyboardInterrupt, or has switched Ctrl-C off",
            hint="Reset the board: with its button, with DTR or RTS, by opening its port at 1200 baud, or by plugging "
            "it in again. If it has just been connected, check that it runs MicroPython and that the speed is right",
        ) from last

    def _burst(self, pause: float) -> Conversation[None]:
        if not pause:  # as fast as the line is
            yield Send(CTRL_C * BURST_BYTES)
            return
        for _ in range(BURST_BYTES):
            yield Send(CTRL_C)
            yield Pause(pause)

    def _await_heading(self, within: float) -> Conversation[None]:
        """Wait for the answer to Ctrl-A, at most `within` seconds, also if the program prints meanwhile."""
        yield Limit(within)
        again, silences = True, max(1, round(within / STEP_SECONDS))
        while True:
            try:
                self.before = yield from self.inbox.until(HEADING, STEP_SECONDS)
                yield Limit(math.inf)
                return
            except ProtocolError:
                # What a program without pauses has printed during a burst. The heading comes behind it.
                self.inbox.put_back(self.inbox.take()[-len(HEADING) :])
            except TransportTimeout:
                silences -= 1
                if not silences:
                    yield Limit(math.inf)
                    raise
                if again and FRIENDLY_PROMPT in self.inbox:
                    # The program has ended. Its prompt has read unread input of the program, or has dropped the Ctrl-A,
                    # as the unix port does.
                    again = False
                    yield Send(CTRL_C + CTRL_A)

    def send_code(self, code: bytes) -> Conversation[None]:
        """Send `code`, which resets the board: no answer is awaited."""
        yield Send(code + CTRL_D)

    def execute(self, code: bytes, within: float, *, sealed: bool = False) -> Conversation[Output]:
        """Run fastflight's own `code` to its end and collect its output, at most `MAX_ANSWER_BYTES`.

        `within` is the longest silence, in seconds. `sealed` is that of `submit`.
        """
        yield from self.submit(code, sealed=sealed)
        return (yield from self.output(within))

    def output(self, within: float) -> Conversation[Output]:
        """Collect the output of code that `submit` has sent. `within` is the longest silence, in seconds."""
        stdout = yield from self.inbox.until(END, within, MAX_ANSWER_BYTES)
        stderr = yield from self.inbox.until(END + b">", within, MAX_ANSWER_BYTES)
        return Output(stdout, stderr)

    def traceback(self, within: float) -> Conversation[bytes]:
        """Receive what follows the `\\x04` after the output of code: its traceback, or nothing."""
        return (yield from self.inbox.until(END + b">", within, MAX_ANSWER_BYTES))

    def deliver(self, within: float) -> Conversation[bytes]:
        """Deliver the output of code that `submit` has sent as it arrives. Return the traceback, or nothing.

        Raises `TransportTimeout` after `within` seconds of silence; the code still runs then.
        """
        rest = b""
        while True:
            data = rest + (yield from self.inbox.some(within))
            output, traceback, rest = split_output(data)
            if output:
                yield Deliver(output)
            if traceback is not None:
                self.inbox.put_back(rest)
                return traceback

    def restarted(self) -> bool:
        """Return whether the bytes in the inbox show that the board restarted. They stay in the inbox."""
        received = self.inbox.take()
        self.inbox.put_back(received)
        return _has_start_line(received) or any(mark in received for mark in RESTARTS)

    def soft_reset(self, *, main: bool = True) -> Conversation[None]:
        """Restart the interpreter with Ctrl-D.

        With `main` at the friendly prompt: afterwards the board runs `main.py`, or is at that prompt. Without it in
        the raw REPL, where `boot.py` runs and `main.py` does not: afterwards the board is in the raw REPL again.
        """
        if not main:
            yield Send(CTRL_D)
            yield from self.inbox.until(SOFT_REBOOT, REBOOT_SECONDS)
            yield from self.inbox.until(HEADING, REBOOT_SECONDS)
            yield from self.inbox.until(b"\n>", ANSWER_SECONDS)
            return
        yield from self.leave()
        yield from self.inbox.until(b">>> ", ANSWER_SECONDS)
        yield Send(CTRL_D)
        yield from self.inbox.until(SOFT_REBOOT, REBOOT_SECONDS)

    def submit(self, code: bytes, *, sealed: bool = False) -> Conversation[None]:
        """Send fastflight's own `code`, which runs in names of its own (`own_code`), and wait until it begins.

        Its output comes next: call `output` or `deliver`. `sealed`: where raw paste works, the board runs the code only
        if its crc32 is right.
        """
        yield from self._probe_paste_once()
        if self.paste:
            yield from self._paste(own_code.wrap(code, sealed=sealed))
        else:
            yield from self._assemble(code, own_code.RUN)

    def _paste(self, code: bytes, *, probing: bool = False) -> Conversation[bool]:
        """Send fastflight's own code by raw paste. Return whether the board took it."""
        self.is_pasting = True
        taken = yield from raw_paste.submit(self.inbox, code, probing=probing, before_end=self._end_paste)
        self._end_paste()
        return taken

    def _end_paste(self) -> None:
        self.is_pasting = False

    def submit_in_program(self, code: bytes) -> Conversation[None]:
        """As `submit`, for a user's code, which runs in `__main__`. Beside a program, these are the program's names."""
        yield from self._probe_paste_once()
        if self.paste:
            yield from raw_paste.submit(self.inbox, code)
        elif len(code) < PLAIN_BYTES:
            yield from self._send_plain(code)
        else:
            yield from self._assemble(code, own_code.RUN_IN_MAIN)

    def _assemble(self, code: bytes, run: bytes) -> Conversation[None]:
        """Send code in pieces, wait for the answer to each, and have the board `run` it."""
        try:
            yield from self._send_pieces(code)
        except DeviceMemory:
            # Try once more: the second attempt begins by freeing what the first one left on the heap.
            yield from self._send_pieces(code)
        yield from self._send_plain(run)

    def _send_pieces(self, code: bytes) -> Conversation[None]:
        for piece in (*own_code.BEGIN, *own_code.pieces(code.decode(), PLAIN_BYTES - 1)):
            yield from self._run_piece(piece)

    def _send_plain(self, code: bytes) -> Conversation[None]:
        yield Send(code + CTRL_D)
        answer = yield from self.inbox.exactly(2, ANSWER_SECONDS)
        if answer != b"OK":
            raise ProtocolError(
                f"the raw REPL answered {answer!r} to a piece of code instead of b'OK'",
                hint="It may have lost bytes of it: try again, or use a slower line",
            )

    def _run_piece(self, code: bytes) -> Conversation[None]:
        yield from self._send_plain(code)
        stdout = yield from self.inbox.until(END, ANSWER_SECONDS, MAX_TRACEBACK_BYTES)
        stderr = yield from self.inbox.until(END + b">", ANSWER_SECONDS, MAX_TRACEBACK_BYTES)
        if b"MemoryError" in stderr:
            raise DeviceMemory(
                "the board has no memory for the code", hint="Send less, or soft-reset it to free its heap"
            )
        if stdout or stderr:
            raise ProtocolError(f"the board answered {(stdout + stderr)[:200]!r} to a piece of code")

    def _probe_paste_once(self) -> Conversation[None]:
        if self.paste is None:
            self.paste = yield from self._probe_paste()

    def _probe_paste(self) -> Conversation[bool]:
        """Run a program without effect to find out whether raw paste works.

        The board's announcement is not enough: the WebAssembly port (1.27) announces raw paste and then hangs.
        """
        try:
            if not (yield from self._paste(b"0", probing=True)):
                return False
            yield from self.inbox.until(END + END + b">", ANSWER_SECONDS)
            return True
        except (TransportTimeout, ProtocolError):
            # Set before recovery, which may fail too: after the line is opened again, the board is not probed again.
            self.paste = False
            yield from self.recover()
            return False


def cut_off() -> BusyError:
    """Return the error for a board that may still run fastflight's code, after its line was lost meanwhile."""
    return BusyError(
        "the line was lost during a request, and the board may still wait for the rest of it",
        holder="a request that the lost line has cut off",
        hint="The board ends most requests after 30 s. interrupt=true ends each at once",
    )


def no_prompt() -> BusyError:
    """Return the error for a MicroPython board that does not answer at its prompt."""
    return BusyError(
        "the board does not answer at its prompt: a program is running on it",
        holder=PROGRAM,
        hint="Wait for the program to end, or ask with interrupt=true to stop it. "
        "For requests beside a program, run aiorepl in it or install the agent: `fastflight agent install`"
        ". If the program has one of them, say so: agent = true in the fleet file, or --agent",
    )


def _has_start_line(received: bytes) -> bool:
    """Return whether `received` has the line that a board prints when it starts: its version, `; ` and its name.

    Code may print `sys.version`, which has the version and not the name. The search is one pass, because `received`
    may be megabytes of lines that begin alike.
    """
    at = received.find(NAME)
    while at >= 0 and (end := received.find(b"\n", at)) >= 0:
        version, separator, _ = received[at:end].rpartition(NAME)[2].partition(b"; ")
        if separator and b";" not in version and b"\r" not in version:
            return True
        at = received.find(NAME, end)
    return False


def split_output(data: bytes) -> tuple[bytes, bytes | None, bytes]:
    """Split received bytes into the output, the traceback, and the bytes that are not parsed yet.

    The output ends at `\\x04`, the traceback at `\\x04>`. The traceback is None until it is complete. Code may print
    `\\x04` itself: the last one before the end marker counts.
    """
    end = data.find(END)
    if end < 0:
        return data, None, b""
    close = data.find(END + b">", end + 1)
    if close >= 0:
        split = data.rfind(END, end, close)
        return data[:split], data[split + 1 : close], data[close + 2 :]
    if len(data) - end > MAX_TRACEBACK_BYTES:
        # No traceback is that long, so the code printed this marker.
        return data[: end + 1], None, data[end + 1 :]
    return data[:end], None, data[end:]
