"""A board whose program runs micropython-lib's `aiorepl`: an asyncio task that offers a REPL beside the program.

Its raw mode takes our conversations with these differences, which `AioRepl` covers:

- The program prints between two commands, also while one is being received. Each command here begins its output with a
  mark, and the board sends everything from `OK` to the next prompt in one go, because no other task runs meanwhile.
- There is no flow control that a program cannot disturb: code goes in short pieces, each with an answer. Raw paste is
  not used; a Ctrl-C in it ends the board's program.
- Ctrl-C does not interrupt a command. The program stands still until the command ends, so commands must be short.
- A command that raises an exception may be printed before its traceback (micropython-lib since 2025).

Source: micropython-lib, `micropython/aiorepl`, and its README.
"""

from __future__ import annotations

from fastflight import own_code
from fastflight.errors import BusyError, DeviceMemory, ProtocolError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Deliver, Pause, Send
from fastflight.protocol.raw_repl import (
    CTRL_A,
    CTRL_B,
    CTRL_D,
    MAX_ANSWER_BYTES,
    MAX_TRACEBACK_BYTES,
    PLAIN_BYTES,
    REBOOT_SECONDS,
    RECOVERY_ATTEMPTS,
    SOFT_REBOOT,
    Output,
    RawRepl,
)
from fastflight.protocol.traffic import END, HEADING, HEADINGS, Marks

# The task reads a byte at a time, and other tasks run in between.
ANSWER_SECONDS = 3.0
# The most output of the program before an answer. A program that prints without end would keep a request waiting.
MAX_OUTPUT_BYTES = 16 * 1024
# Time for the program to end.
END_SECONDS = 0.3
# Whether aiorepl is loaded. It may have ended since.
LOADED = b"_ff.print('aiorepl' in _ff.__import__('sys').modules)"
# Runs before and after a command of ours. `MARK` begins its output.
BEGIN_COMMAND, MARK, END_COMMAND = b"import builtins as _ff\n", b"%b.print(end='%b')\n", b"\ndel _ff"
# Before the pieces of code: as `own_code.BEGIN`, with what is needed to print an exception.
BEGIN = (
    b"import builtins as _ff\n_ff=['',_ff,_ff.exec,_ff.Exception]",
    b"_ff+=[_ff[1].__dict__,_ff[1].__import__('sys')]",
)
# Run the code that was sent in pieces, in names of its own or among those of the program. `FAILED` separates its output
# from its traceback. Longer than a piece: boards that have asyncio have receive rings of at least 128 bytes.
RUN_OWN, RUN_IN_PROGRAM = b",_ff[4],{}", b""
RUN = (
    b"try:_ff[2](_ff[0]%b)\nexcept _ff[3] as _ffe:_ff[1].print(end='\\4\\x1f');_ff[5].print_exception(_ffe)\n"
    b"finally:del _ff"
)
FAILED = b"\x04\x1f"

PROMPTS: Marks = (b"\r\n--> ", b"\n--> ")
# The answer to a piece of code: nothing, or the piece itself and a traceback.
PIECES: Marks = (b"OK\x04", b"OK_ff", b"OKimport")


class AioRepl(RawRepl):
    """The aiorepl of one board, with the methods of `RawRepl`."""

    beside = "aiorepl"

    def __init__(self) -> None:
        super().__init__(paste=False)
        self._commands = 0

    def enter(self, *, attempts: int = 1) -> Conversation[None]:
        """As `RawRepl.enter`."""
        self.traffic.expect(HEADINGS)
        yield from super().enter(attempts=attempts)

    def is_running(self) -> Conversation[bool]:
        """Return whether it is aiorepl that has answered to Ctrl-A, and not the board's own REPL."""
        yield from self._short_command(LOADED)
        if (yield from self.output(ANSWER_SECONDS)).stdout.strip() != b"True":
            return False
        # Its program may have ended. Only the board's own prompt prints a banner.
        self.traffic.expect(PROMPTS)
        self.traffic.expect(HEADINGS)
        yield Send(CTRL_B + CTRL_A)
        before = yield from self.inbox.until(HEADING, ANSWER_SECONDS, MAX_OUTPUT_BYTES)
        yield from self.inbox.until(b"\n>", ANSWER_SECONDS)
        return b">>> " not in before

    def end_program(self) -> Conversation[None]:
        """End the program: Ctrl-D at the prompt of aiorepl shuts asyncio down."""
        yield from self.leave()
        yield Send(CTRL_D)
        yield Pause(END_SECONDS)

    def leave(self) -> Conversation[None]:
        """Return to the prompt of aiorepl."""
        self.traffic.forget()
        self.traffic.expect(PROMPTS)
        yield from super().leave()

    def recover(self, grace: float = 0.0) -> Conversation[None]:
        """Reach the raw mode again, when the present command has ended. `TransportTimeout` if there is no answer."""
        last: Exception | None = None
        for _ in range(1 + RECOVERY_ATTEMPTS):
            self.inbox.clear()
            self.traffic.forget()
            self.traffic.expect(PROMPTS)
            self.traffic.expect(HEADINGS)
            try:
                # Ctrl-B drops a command that is not complete, and does nothing at the prompt.
                yield Send(CTRL_B + CTRL_A)
                yield from self.inbox.until(HEADING, ANSWER_SECONDS, MAX_OUTPUT_BYTES)
                yield from self.inbox.until(b"\n>", ANSWER_SECONDS)
                yield from self._echo()
                self.entered = True
                return
            except (TransportTimeout, ProtocolError) as error:
                last = error
        raise TransportTimeout(
            "the program's aiorepl does not answer",
            hint="Code that runs there cannot be stopped: reset the board, or plug it in again",
        ) from last

    def soft_reset(self, *, main: bool = True) -> Conversation[None]:
        """End the program and restart the interpreter. Raises `BusyError` without `main`: it would run again."""
        if not main:
            raise BusyError(
                "a program is running on the board",
                holder="the board's own program",
                hint="Ask with interrupt=true to stop it",
            )
        yield from self.submit(b"import machine\nmachine.soft_reset()")
        self.entered = False
        self.traffic.leave()
        yield from self.inbox.until(SOFT_REBOOT, REBOOT_SECONDS)

    def submit(self, code: bytes, *, sealed: bool = False) -> Conversation[None]:
        """Send fastflight's own `code` and wait until it begins to run. Its output comes next: call `output`."""
        yield from self._submit(code, RUN_OWN)

    def submit_in_program(self, code: bytes) -> Conversation[None]:
        """As `submit`, for code that runs among the global names of the board's program."""
        yield from self._submit(code, RUN_IN_PROGRAM)

    def _submit(self, code: bytes, names: bytes) -> Conversation[None]:
        for piece in (*BEGIN, *own_code.pieces(code.decode(), PLAIN_BYTES - 1)):
            yield from self._run_piece(piece)
        yield from self._command(RUN % names, b"_ff[1]")

    def send_code(self, code: bytes) -> Conversation[None]:
        """Send `code`, which resets the board: no answer is awaited."""
        yield from self.submit(code)

    def output(self, within: float) -> Conversation[Output]:
        """Collect the output of code that `submit` has sent. `within` is the longest silence, in seconds."""
        return _parse((yield from self.inbox.until(END + b">", within, MAX_ANSWER_BYTES)))

    def traceback(self, within: float) -> Conversation[bytes]:
        """As `RawRepl.traceback`."""
        answer = yield from super().traceback(within)
        return _parse(END + answer).stderr

    def deliver(self, within: float) -> Conversation[bytes]:
        """Deliver the output of code that `submit` has sent. Return the traceback, empty if the code raised nothing."""
        data = b""
        while True:
            data += yield from self.inbox.some(within)
            end = data.find(END + b">")
            if end >= 0:
                self.inbox.put_back(data[end + 2 :])
                output = _parse(data[:end])
                yield Deliver(output.stdout)
                return output.stderr
            first = data.find(END)
            first = len(data) if first < 0 or len(data) - first > MAX_TRACEBACK_BYTES else first
            yield Deliver(data[:first])
            data = data[first:]

    def _short_command(self, code: bytes) -> Conversation[None]:
        """Send a short command of our own, to which `_ff` is the module `builtins`. Wait until it begins to run."""
        yield from self._command(code + END_COMMAND, b"_ff", BEGIN_COMMAND)

    def _command(self, code: bytes, builtins: bytes, before: bytes = b"") -> Conversation[None]:
        """Send a command, and wait until it begins to run. `builtins` names the module there, after code `before`."""
        self._commands += 1
        mark = b"\x1f%d\x1f" % self._commands
        self.traffic.expect((b"OK" + mark,), closed=True)
        yield Send(before + MARK % (builtins, mark) + code + CTRL_D)
        yield from self.inbox.until(b"OK" + mark, ANSWER_SECONDS, MAX_OUTPUT_BYTES)

    def _echo(self) -> Conversation[None]:
        """Run a command without effect, and drop everything before its answer."""
        yield from self._short_command(b"0")
        yield from self.output(ANSWER_SECONDS)
        self._late_answer = False

    def _run_piece(self, code: bytes) -> Conversation[None]:
        """As `RawRepl._run_piece`. The output of the program may come before the answer."""
        self.traffic.expect(PIECES, closed=True)
        yield Send(code + CTRL_D)
        answer = yield from self.inbox.until(END + b">", ANSWER_SECONDS, MAX_OUTPUT_BYTES + MAX_TRACEBACK_BYTES)
        if answer.endswith(b"OK" + END):
            return
        if b"MemoryError" in answer:
            raise DeviceMemory(
                "the board has no memory for the code", hint="Send less, or soft-reset it to free its heap"
            )
        raise ProtocolError(
            "the board did not take a piece of code as it was sent",
            hint="Try again; if it happens often, use a lower speed or a better cable",
        )


def _parse(answer: bytes) -> Output:
    """Split the answer to a command into its output and its traceback."""
    output, _, traceback = answer.removesuffix(END).rpartition(FAILED)
    if answer.endswith(END):
        return Output(output, traceback) if FAILED in answer else Output(traceback, b"")
    # aiorepl could not run the command itself, for lack of memory.
    output, _, traceback = answer.rpartition(END)
    return Output(output, traceback)
