"""MicroPython's raw REPL, as conversations.

The wire format is that of MicroPython's `docs/reference/repl.rst`: Ctrl-A asks for the raw REPL, which answers with a
banner and a prompt; code followed by Ctrl-D is acknowledged by `OK`, then come the output, `\\x04`, the traceback (or
nothing), and `\\x04>`. Ctrl-B goes back to the friendly REPL, Ctrl-C interrupts what runs.

`RawRepl` holds the state of one board's REPL. Its methods are conversations. After one that fails or is closed early,
the board's state is unknown: run `recover` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fastflight.errors import BusyError, DeviceMemory, ProtocolError, TransportTimeout
from fastflight.protocol import raw_paste
from fastflight.protocol.conversation import Conversation, Deliver, Pause, Send
from fastflight.protocol.inbox import Inbox

CTRL_A = b"\x01"
CTRL_B = b"\x02"
CTRL_C = b"\x03"
CTRL_D = b"\x04"
END = b"\x04"

BANNER = b"raw REPL; CTRL-B to exit\r\n"
PROMPT = BANNER + b">"
SOFT_REBOOT = b"soft reboot\r\n"
# Of what a board says when it starts.
NAME = b"MicroPython v"
RESTARTS = (b"MPY: " + SOFT_REBOOT, b"PYB: " + SOFT_REBOOT)

# Plain raw mode has no flow control, and the smallest receive ring, the micro:bit's, holds 63 bytes. More than that,
# Ctrl-D included, may lose bytes on a busy board at any pace: only an answer shows that there is room.
PLAIN_BYTES = 63
# A board at its prompt answers within milliseconds; flash housekeeping and slow links take the rest.
ANSWER_SECONDS = 1.0
# Boot, mounting the file system and boot.py after a soft reset.
REBOOT_SECONDS = 10.0
RECOVERY_ATTEMPTS = 3
# Where Ctrl-C does not interrupt code that reads its input (the unix port), a routine that waits for the rest of a step
# reads it as a byte. This many fill the longest step, a third of a 512-byte ring, and end it.
FILLING_BYTES = 256
# A traceback longer than this is output that happens to hold the end marker.
MAX_TRACEBACK_BYTES = 64 * 1024
# What a single answer may hold; streams have no limit.
MAX_ANSWER_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a piece of code, and the board's traceback (empty if the code raised nothing)."""

    stdout: bytes
    stderr: bytes


class RawRepl:
    """One board's raw REPL.

    `entered` is true while the board is in it, as far as we know. `paste` tells whether raw paste works: None until it
    was tried.
    """

    def __init__(self, paste: bool | None = None) -> None:
        self.inbox = Inbox()
        self.entered = False
        # How often it was left for the friendly prompt.
        self.leaves = 0
        self.paste = paste
        # An answer did not come in time: it may still come, and be taken for that of something else.
        self._owed = False
        self._echoes = 0

    def enter(self, *, interrupt: bool, attempts: int = 1) -> Conversation[None]:
        """Go from the prompt to the raw REPL; with `interrupt`, stop whatever runs first.

        Without it a running program is left alone: `BusyError` when the board does not answer at its prompt. A board
        that may still be booting, and not listen yet, is asked several times.
        """
        if interrupt:
            yield from self.recover()
            return
        self.inbox.clear()
        for attempt in range(1, attempts + 1):
            yield Send(CTRL_A)
            try:
                yield from self.inbox.until(PROMPT, ANSWER_SECONDS)
                if self._owed:  # each Ctrl-A has its banner: this one may be that of an earlier one
                    yield from self._echo()
                self.entered = True
                return
            except (TransportTimeout, ProtocolError) as error:
                self._owed = True
                if attempt < attempts:
                    continue
                # Should the program end later, this takes the board back to the friendly prompt.
                yield Send(CTRL_B)
                raise BusyError(
                    "the board does not answer at its prompt: a program is running on it, or it is not MicroPython",
                    holder="the board's own program",
                    hint="Wait for the program to end, or ask with interrupt=true to stop it",
                ) from error

    def _echo(self) -> Conversation[None]:
        """Make sure that no old output is left: banners and answers may come before this echo, and nothing after it."""
        self._echoes += 1  # no two are alike: the one that is asked for here has not been asked for before
        token = f"ff{self._echoes}-{id(self) & 0xFFFFFF:06x}"
        # Without a line end, which some ports cook to CRLF and others do not.
        yield Send(f"print('{token}',end='')".encode() + CTRL_D)
        yield from self.inbox.until(f"OK{token}\x04\x04>".encode(), ANSWER_SECONDS)
        self._owed = False

    def leave(self) -> Conversation[None]:
        """Go back to the friendly REPL, without waiting for its banner: `enter` skips everything before its own."""
        self.entered = False
        self.leaves += 1
        yield Send(CTRL_B)

    def recover(self) -> Conversation[None]:
        """Reach the raw REPL from any state: interrupt, enter, and check by an echo that no old output is left."""
        last: Exception | None = None
        for attempt in range(RECOVERY_ATTEMPTS):
            self.inbox.clear()
            # The return ends a half-typed line of a friendly REPL; the second Ctrl-C meets code that caught the first.
            yield Send(b"\r" + CTRL_C * (FILLING_BYTES if attempt else 2))
            yield Pause(0.01)
            yield Send(CTRL_A)
            try:
                yield from self.inbox.until(PROMPT, ANSWER_SECONDS)
                yield from self._echo()
                self.entered = True
                return
            except (TransportTimeout, ProtocolError) as error:
                self._owed = True
                last = error
        raise TransportTimeout(
            "the board does not answer to Ctrl-C and Ctrl-A",
            hint="Check that it runs MicroPython and that the speed is right, reset it, or plug it in again",
        ) from last

    def execute(self, code: bytes, within: float) -> Conversation[Output]:
        """Run `code` to its end; `within` bounds each silence. Its output is collected, so it should be short."""
        yield from self.submit(code)
        return (yield from self.output(within))

    def output(self, within: float) -> Conversation[Output]:
        """Collect the output of the code that was submitted."""
        stdout = yield from self.inbox.until(END, within, MAX_ANSWER_BYTES)
        stderr = yield from self.inbox.until(END + b">", within, MAX_ANSWER_BYTES)
        return Output(stdout, stderr)

    def follow(self, code: bytes, within: float) -> Conversation[bytes]:
        """Run `code` and deliver its output as it comes; the result is the traceback, empty if it did not raise.

        `TransportTimeout` after `within` seconds of silence; the code still runs.
        """
        yield from self.submit(code)
        return (yield from self.deliver(within))

    def deliver(self, within: float) -> Conversation[bytes]:
        """Deliver the output of the code that was submitted, as `follow` does."""
        held = b""
        while True:
            data = held + (yield from self.inbox.some(within))
            output, traceback, held = split_output(data)
            if output:
                yield Deliver(output)
            if traceback is not None:
                self.inbox.put_back(held)
                return traceback

    def restarted(self) -> bool:
        """Whether the bytes that are not parsed yet show that the board restarted."""
        received = self.inbox.take()
        self.inbox.put_back(received)
        return _begins(received) or any(each in received for each in RESTARTS)

    def soft_reset(self) -> Conversation[None]:
        """Restart the interpreter as Ctrl-D at the friendly prompt does, `main.py` included. From the raw REPL.

        Afterwards the board runs `main.py` or sits at its friendly prompt.
        """
        yield from self.leave()
        yield from self.inbox.until(b">>> ", ANSWER_SECONDS)
        yield Send(CTRL_D)
        yield from self.inbox.until(SOFT_REBOOT, REBOOT_SECONDS)

    def submit(self, code: bytes) -> Conversation[None]:
        """Send `code` and wait for its acknowledgement; its output comes next."""
        if self.paste is None:
            self.paste = yield from self._probe_paste()
        if self.paste:
            yield from raw_paste.submit(self.inbox, code)
            return
        if len(code) < PLAIN_BYTES:
            yield from self._hand_over(code)
            return
        try:
            yield from self._put_together(code)
        except DeviceMemory:
            # Once more: it begins by giving up what the attempt left.
            yield from self._put_together(code)
        yield from self._hand_over(b"exec(_c)")

    def _put_together(self, code: bytes) -> Conversation[None]:
        """Send long code to the board in pieces, and wait for the answer to each."""
        # A small heap may only be in pieces, and neither the text nor what it compiles to finds room.
        yield from self._run_piece(b"_c=''\nimport gc\ngc.collect()")
        for piece in pieces(code.decode()):
            yield from self._run_piece(piece)

    def _hand_over(self, code: bytes) -> Conversation[None]:
        yield Send(code + CTRL_D)
        answer = yield from self.inbox.exactly(2, ANSWER_SECONDS)
        if answer != b"OK":
            raise ProtocolError(
                f"the raw REPL answered {answer!r} to a piece of code instead of b'OK'",
                hint="It may have lost bytes of it: try again, or use a slower line",
            )

    def _run_piece(self, code: bytes) -> Conversation[None]:
        yield from self._hand_over(code)
        stdout = yield from self.inbox.until(END, ANSWER_SECONDS, MAX_TRACEBACK_BYTES)
        stderr = yield from self.inbox.until(END + b">", ANSWER_SECONDS, MAX_TRACEBACK_BYTES)
        if b"MemoryError" in stderr:
            raise DeviceMemory(
                "the board has no memory for the code", hint="Send less, or soft-reset it to free its heap"
            )
        if stdout or stderr:
            raise ProtocolError(f"the board answered {(stdout + stderr)[:200]!r} to a piece of code")

    def _probe_paste(self) -> Conversation[bool]:
        """Whether raw paste works, found by running an empty program and not by what the board announces.

        The WebAssembly port (1.27) announces it and then hangs.
        """
        try:
            if not (yield from raw_paste.submit(self.inbox, b"0", probing=True)):
                return False
            yield from self.inbox.until(END + END + b">", ANSWER_SECONDS)
            return True
        except (TransportTimeout, ProtocolError):
            # Known before recovery, which may fail too: then the line must be opened anew, and not be probed again.
            self.paste = False
            yield from self.recover()
            return False


def pieces(code: str) -> Iterator[bytes]:
    """Statements of less than `PLAIN_BYTES` that add up to `code` in `_c`. Its first line gives the memory back."""
    rest = "_c=0\n" + code
    while rest:
        # Escapes make a literal longer than its text.
        size = PLAIN_BYTES - len("_c+=''") - 1
        while len(statement := f"_c+={rest[:size]!r}".encode()) >= PLAIN_BYTES:
            size -= 1
        yield statement
        rest = rest[size:]


def _begins(received: bytes) -> bool:
    """Whether a line has a board's version and its name, which `sys.version` has not, and code may print.

    In one pass: it may be megabytes of what such a line begins with.
    """
    at = received.find(NAME)
    while at >= 0 and (end := received.find(b"\n", at)) >= 0:
        version, told, _ = received[at:end].rpartition(NAME)[2].partition(b"; ")
        if told and b";" not in version and b"\r" not in version:
            return True
        at = received.find(NAME, end)
    return False


def split_output(data: bytes) -> tuple[bytes, bytes | None, bytes]:
    """Split received bytes into output, the traceback once it is whole (else None), and what must wait for more.

    The output ends at `\\x04`, the traceback at `\\x04>`. Code may print `\\x04` itself: the last one before the end
    counts.
    """
    end = data.find(END)
    if end < 0:
        return data, None, b""
    close = data.find(END + b">", end + 1)
    if close >= 0:
        split = data.rfind(END, end, close)
        return data[:split], data[split + 1 : close], data[close + 2 :]
    if len(data) - end > MAX_TRACEBACK_BYTES:
        # No traceback is that long, so this marker was printed.
        return data[: end + 1], None, data[end + 1 :]
    return data[:end], None, data[end:]
