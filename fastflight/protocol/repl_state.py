"""Derives which REPL a board is in from the bytes that a host and the board exchange.

Pass a `ReplState` all bytes that cross the line: call `sent` for what the host sends, `received` for what the board
answers. Its properties tell the mode and whether code runs. If the board is a process that has ended, `exit_is_reset`
tells whether that end was a soft reset.

A change of mode needs both sides: the host asks (with a control character, where the REPL reads one) and the board
answers (with a prompt, a banner, `OK`). One exception: a ^B at the raw prompt counts at once, because nothing can
prevent the change there. A `\\x04` inside a raw paste, or a prompt that a program prints, changes nothing. The result
does not depend on how the bytes are split.

::

    FRIENDLY -- ^A ... "raw REPL; CTRL-B to exit\\r\\n>" --> RAW
    FRIENDLY -- ^E ... "=== " --> PASTE -- ^C or ^D --> FRIENDLY
    RAW -- ^B --> FRIENDLY
    RAW -- code ^D ... "OK" --> code runs -- "\\x04" traceback "\\x04>" --> RAW
    RAW -- ^D on an empty line ... "OK" --> the process ends, or the board prints its banner --> RAW
    RAW -- ^E A ^A ... "R\\x01" window --> RAW_PASTE -- ^D or ^C from the host and "\\x04" from the board --> code runs

What the host sends while code runs is input for that code. A ^B is remembered all the same: a host may ask to leave
the raw REPL before the code has ended. Source: MicroPython's `docs/reference/repl.rst` and what its `pyexec` sends.

Limit: code that prints `\\x04`, text, `\\x04>` seems to end early, as it does for every host that reads the raw REPL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

PROMPT = b">>> "
PASTE_PROMPT = b"=== "
RAW_PROMPT = b"raw REPL; CTRL-B to exit\r\n>"
SUBMITTED = b"OK"
# How the REPL answers a ^D on an empty line. An older unix port answers without the carriage return.
NEW_LINES = (b"\r\n", b"\n")
PASTE_SUPPORTED = b"R\x01"
CTRL_A, CTRL_B, CTRL_C, CTRL_D, CTRL_E = 1, 2, 3, 4, 5
RETURN = 0x0D
BACKSPACES = (0x08, 0x7F)
IGNORED_KEYS = (0x00, 0x0A)
# The most bytes to remember that a host sends after ^A without waiting for the raw REPL. A board's receive ring holds
# less.
MAX_AHEAD_BYTES = 4096
PIECE_BYTES = 1024

# Enough of an answer to tell it from a longer one, and enough of a line to recognise an empty one and a request for
# raw paste.
_ANSWER_BYTES = max(map(len, NEW_LINES)) + 1
_LINE_BYTES = 3

_KEY = re.compile(rb"[\x00-\x1f\x7f]")
_RAW_CONTROL = re.compile(rb"[\x01-\x04]")
_PASTE_END = re.compile(rb"[\x03\x04]")
_FRIENDLY_MARK = re.compile(b"|".join(map(re.escape, (RAW_PROMPT, PROMPT, PASTE_PROMPT))))
# After SystemExit a board restarts, and prints the second mark. A process ends instead.
_END_MARK = re.compile(rb"\x04>|soft reboot\r\n" + re.escape(RAW_PROMPT))
# The length of the longest mark: more of the received bytes cannot be the beginning of one.
_TAIL_BYTES = len(b"soft reboot\r\n" + RAW_PROMPT)


class ReplMode(Enum):
    """The part of the board that reads what the host sends."""

    FRIENDLY = "friendly REPL"
    PASTE = "paste mode"
    RAW = "raw REPL"
    RAW_PASTE = "raw paste"


class _Phase(Enum):
    FRIENDLY = "at the friendly prompt, or running what was entered there"
    PASTE = "paste mode"
    RAW = "at the raw prompt"
    SUBMITTED = "code sent, waiting for OK"
    RUNNING = "code runs"
    ENDING = "the output has an end mark"
    RESETTING = "soft reset requested at the raw prompt"
    PASTE_REQUESTED = "raw paste requested"
    RAW_PASTE = "raw paste"


_MODES = {_Phase.FRIENDLY: ReplMode.FRIENDLY, _Phase.PASTE: ReplMode.PASTE, _Phase.RAW_PASTE: ReplMode.RAW_PASTE}


class ReplState:
    """The state of one board that has just started and has not printed a prompt; with `raw`, at the raw prompt."""

    def __init__(self, *, raw: bool = False) -> None:
        # The last bytes received: perhaps the first part of a mark.
        self._tail = b""
        # The first bytes received since the board's last prompt or the host's last ^D, whichever was later.
        self._answer = b""
        # The first bytes of the raw REPL's line, and whether the board answered a ^D on an empty one.
        self._line = b""
        self._acknowledged = False
        # Raw paste: the board's reply, and which sides have ended it.
        self._reply = b""
        self._host_ended = False
        self._board_ended = False
        self._to_friendly()
        if raw:
            self._phase = _Phase.RAW

    def _to_friendly(self, *, prompted: bool = False) -> None:
        self._phase = _Phase.FRIENDLY
        self._tail = self._answer = b""
        self._prompted = prompted
        # Whether the echo shows that a line was entered since the prompt, and that it was not empty.
        self._entered = self._echoed = False
        # The number of keys on the line (a key with unknown effect counts as one), and whether any line was sent.
        self._typed = 0
        self._submitted = False
        self._reset_requested = False
        self._raw_requested = False
        # What the host sent after the ^A that requested the raw REPL.
        self._ahead = b""
        # Whether the host requested paste mode, and whether it has sent the ^C or ^D that ends it.
        self._paste_requested = self._paste_over = False
        # Whether the host sent a ^B to the raw REPL while its code ran.
        self._leaving = False

    @property
    def mode(self) -> ReplMode:
        """The mode that reads the host's next bytes, according to the answers so far."""
        return _MODES.get(self._phase, ReplMode.RAW)

    @property
    def raw(self) -> bool:
        """Whether the board is in the raw REPL, or returns to it when the running code ends."""
        return self.mode in (ReplMode.RAW, ReplMode.RAW_PASTE)

    @property
    def running(self) -> bool:
        """Whether code runs or the board boots, so that no REPL reads what the host sends."""
        if self._phase is _Phase.FRIENDLY:
            return not self._prompted or (self._entered and self._echoed)
        return self._phase in (_Phase.RUNNING, _Phase.ENDING)

    def exit_is_reset(self, code: int) -> bool:
        """Return whether the end of the process, with exit code `code`, corresponds to a board's soft reset.

        That is so in three cases: a ^D on an empty line that the REPL answered; `SystemExit` in the raw REPL, after
        the end mark of the output; code entered in the friendly REPL that ends the process with code 0, which is
        `sys.exit()`. A process that a signal ended (a negative code) was not reset.
        """
        if code < 0:
            return False
        if self._phase is _Phase.RESETTING:
            return self._acknowledged
        if self._phase is _Phase.ENDING:
            return self._tail.endswith(b"\x04")
        if self._phase is not _Phase.FRIENDLY or not self._prompted:
            return False
        answered = self._reset_requested and self._answer in NEW_LINES
        return answered or (self._submitted and self.running and code == 0)

    def sent(self, data: bytes) -> None:
        """Process `data` that the host sends."""
        # In pieces, because each key at a prompt copies the data that follows it.
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            while piece:
                piece = _SENT[self._phase](self, piece)

    def received(self, data: bytes) -> None:
        """Process `data` that the board sends."""
        while data:
            data = _RECEIVED[self._phase](self, data)

    # Each method below processes a first part of what the host sends. It returns the rest, which may be for another
    # phase.

    def _type(self, data: bytes) -> bytes:
        """Process keys for the friendly line editor, to know whether its line is empty."""
        if not (key := _KEY.match(data)):
            end = found.start() if (found := _KEY.search(data)) else len(data)
            self._typed += end
            self._reset_requested = False
        else:
            end = 1
            self._press(key[0][0])
        if data[0] == CTRL_A:
            self._raw_requested, self._ahead = True, b""
        elif self._raw_requested:
            self._ahead = (self._ahead + data[:end])[:MAX_AHEAD_BYTES]
        return data[end:]

    def _press(self, key: int) -> None:
        self._reset_requested = key == CTRL_D and not self._typed
        if self._reset_requested:
            self._answer = b""
        elif key in (CTRL_C, RETURN):
            self._submitted = self._submitted or key == RETURN
            self._typed = 0
        elif key in BACKSPACES:
            self._typed = max(0, self._typed - 1)
        elif key == CTRL_E and not self._typed:
            self._paste_requested, self._paste_over = True, False
        elif key not in (CTRL_A, CTRL_B, CTRL_D, CTRL_E, *IGNORED_KEYS):
            # A tab completes and a cursor key recalls: afterwards the line may hold anything.
            self._typed += 1
        if self._paste_requested and key in (CTRL_C, CTRL_D):
            self._paste_over = True

    def _paste_text(self, data: bytes) -> bytes:
        if not (end := _PASTE_END.search(data)):
            return b""
        self._to_friendly(prompted=True)
        # After ^D the text runs. After ^C the next prompt shows that nothing runs.
        self._entered = self._echoed = self._submitted = True
        return data[end.end() :]

    def _enter_code(self, data: bytes) -> bytes:
        self._leaving = False
        control = _RAW_CONTROL.search(data)
        end = control.start() if control else len(data)
        line = (self._line + data[: min(end, _LINE_BYTES)])[:_LINE_BYTES]
        if not control:
            self._line = line
            return b""
        self._line = self._tail = self._answer = b""
        match data[end]:
            case 0x01 if len(line) == 2 and line[0] == CTRL_E:
                self._phase = _Phase.PASTE_REQUESTED
                self._reply = b""
                self._host_ended = self._board_ended = False
            case 0x02:
                self._to_friendly()
            case 0x04:
                self._phase = _Phase.SUBMITTED if line else _Phase.RESETTING
                self._acknowledged = False
        return data[end + 1 :]

    def _raw_paste_text(self, data: bytes) -> bytes:
        if self._host_ended:
            return self._input(data)
        if not (end := _PASTE_END.search(data)):
            return b""
        self._host_ended = True
        self._run_if_pasted()
        return data[end.end() :]

    def _input(self, data: bytes) -> bytes:
        """Process input for the running code. The code may not read a ^B: then the raw REPL reads it later."""
        self._leaving = self._leaving or CTRL_B in data
        return b""

    # Each method below does the same with what the board sends.

    def _friendly_output(self, data: bytes) -> bytes:
        text = self._tail + data
        start, unmarked = len(self._tail), 0
        for mark in _FRIENDLY_MARK.finditer(text):
            self._record(text[start : mark.end()])
            start = unmarked = mark.end()
            if mark[0] == PROMPT:
                self._prompted = True
                self._entered = self._echoed = False
                self._answer = b""
            elif mark[0] == RAW_PROMPT and self._raw_requested:
                self._to_raw()
                self.sent(self._ahead)
                return text[start:]
            elif mark[0] == PASTE_PROMPT and self._paste_requested:
                self._paste_requested = False
                if not self._paste_over:
                    self._phase = _Phase.PASTE
                    return text[start:]
        self._record(text[start:])
        self._tail = text[unmarked:][-_TAIL_BYTES:]
        return b""

    def _record(self, text: bytes) -> None:
        """Record the beginning of what the board sends after the prompt, and whether it echoes a line."""
        self._answer = (self._answer + text[:_ANSWER_BYTES])[:_ANSWER_BYTES]
        if not self._entered:
            echo, line_end, _ = text.partition(b"\n")
            self._echoed = self._echoed or bool(echo.strip(b"\r"))
            self._entered = bool(line_end)

    def _ignore(self, data: bytes) -> bytes:
        return b""

    def _at_raw_prompt(self, data: bytes) -> bytes:
        if not self._leaving:
            return b""
        rest = self._after(PROMPT, data)
        if rest is None:
            return b""
        self._to_friendly(prompted=True)
        return rest

    def _acknowledgement(self, data: bytes) -> bytes:
        rest = self._after(SUBMITTED, data)
        if rest is None:
            return b""
        self._phase = _Phase.RUNNING
        return rest

    def _output(self, data: bytes) -> bytes:
        rest = self._after(b"\x04", data)
        if rest is None:
            return b""
        self._phase = _Phase.ENDING
        return rest

    def _traceback(self, data: bytes) -> bytes:
        text = self._tail + data
        if end := _END_MARK.search(text):
            self._to_raw()
            return text[end.end() :]
        self._tail = text[-_TAIL_BYTES:]
        return b""

    def _reset_answer(self, data: bytes) -> bytes:
        self._acknowledged = self._acknowledged or SUBMITTED in self._tail + data
        rest = self._after(RAW_PROMPT, data)
        if rest is None:
            return b""
        self._to_raw()
        return rest

    def _paste_reply(self, data: bytes) -> bytes:
        # Two bytes tell whether raw paste is supported; two more are the window.
        missing = (4 if self._reply[:2] == PASTE_SUPPORTED else 2) - len(self._reply)
        self._reply += data[:missing]
        if len(self._reply) == 4:
            self._phase = _Phase.RAW_PASTE
        elif len(self._reply) == 2 and self._reply != PASTE_SUPPORTED:
            self._to_raw()
        return data[missing:]

    def _paste_window(self, data: bytes) -> bytes:
        end = data.find(b"\x04")
        if end < 0:
            return b""
        self._board_ended = True
        self._run_if_pasted()
        return data[end + 1 :]

    def _run_if_pasted(self) -> None:
        # A board that ends the paste first waits for the host's end mark before it goes on.
        if self._host_ended and self._board_ended:
            self._phase = _Phase.RUNNING

    def _to_raw(self) -> None:
        self._phase = _Phase.RAW
        self._tail = self._line = b""

    def _after(self, mark: bytes, data: bytes) -> bytes | None:
        """Return what follows `mark`, which may have begun in earlier data; None if it is not complete yet."""
        text = self._tail + data
        at = text.find(mark)
        if at < 0:
            self._tail = text[-_TAIL_BYTES:]
            return None
        self._tail = b""
        return text[at + len(mark) :]


_Handler = Callable[[ReplState, bytes], bytes]

_SENT: dict[_Phase, _Handler] = {
    _Phase.FRIENDLY: ReplState._type,
    _Phase.PASTE: ReplState._paste_text,
    _Phase.RAW: ReplState._enter_code,
    _Phase.SUBMITTED: ReplState._input,
    _Phase.RUNNING: ReplState._input,
    _Phase.ENDING: ReplState._input,
    _Phase.RESETTING: ReplState._input,
    _Phase.PASTE_REQUESTED: ReplState._raw_paste_text,
    _Phase.RAW_PASTE: ReplState._raw_paste_text,
}

_RECEIVED: dict[_Phase, _Handler] = {
    _Phase.FRIENDLY: ReplState._friendly_output,
    _Phase.PASTE: ReplState._ignore,
    _Phase.RAW: ReplState._at_raw_prompt,
    _Phase.SUBMITTED: ReplState._acknowledgement,
    _Phase.RUNNING: ReplState._output,
    _Phase.ENDING: ReplState._traceback,
    _Phase.RESETTING: ReplState._reset_answer,
    _Phase.PASTE_REQUESTED: ReplState._paste_reply,
    _Phase.RAW_PASTE: ReplState._paste_window,
}
