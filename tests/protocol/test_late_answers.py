"""A raw REPL whose answers come late: on a host that stands still for seconds, or from a board that is booting."""

from __future__ import annotations

import re
from itertools import product

import pytest

from fastflight.errors import BusyError, TransportTimeout
from fastflight.protocol import Conversation, RawRepl, Receive, Send
from fastflight.protocol.conversation import T
from fastflight.protocol.raw_repl import PROMPT

PRINT = re.compile(rb"print\('([^']*)',end=''\)")
CODE = b"print('here',end='')"


class LateBoard:
    """It does all that it is sent, in order; what it says from the answer number `late` on waits for `silences`.

    `paste`: what it has of raw paste.
    """

    def __init__(self, paste: str, late: int, silences: int) -> None:
        self.paste = paste
        self.late = late
        self.silences = silences
        self.raw = self.hung = False
        self.line = b""
        self.said = b""
        self.answered = 0

    def play(self, conversation: Conversation[T]) -> T:
        """Run a conversation with it."""
        try:
            step = next(conversation)
            while True:
                if isinstance(step, Send):
                    for byte in step.data:
                        self.hear(bytes([byte]))
                    step = conversation.send(b"")
                elif not isinstance(step, Receive):
                    step = conversation.send(b"")
                elif said := self.heard():
                    step = conversation.send(said)
                else:
                    step = conversation.throw(TransportTimeout("silence"))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def heard(self) -> bytes:
        if self.said:
            if self.answered >= self.late and self.silences:
                self.silences -= 1
                return b""
            self.answered += 1
        said, self.said = self.said, b""
        return said

    def hear(self, byte: bytes) -> None:
        if self.hung:  # as the WebAssembly port in raw paste, until it is interrupted
            self.hung = byte != b"\x03"
        elif byte == b"\x01" and self.line == b"\x05A" and self.paste != "unknown":
            self.line = b""
            self.hung = self.paste == "hangs"
            self.said += b"R\x01\x20\x00\x01" if self.hung else b"R\x00>"
        elif byte == b"\x01":
            self.said += PROMPT if self.raw else b"\r\n" + PROMPT
            self.line, self.raw = b"", True
        elif byte == b"\x02":
            self.line, self.raw = b"", False
            self.said += b"\r\nMicroPython v1.27\r\n>>> "
        elif byte == b"\x03":
            self.line = b""
            self.said += b"" if self.raw else b"\r\n>>> "
        elif byte == b"\x04" and self.raw:
            found = PRINT.search(self.line)
            self.said += b"OK" + (found[1] if found else b"") + b"\x04\x04>"
            self.line = b""
        elif self.raw:
            self.line += byte


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("paste", ["none", "unknown", "hangs"])
def test_no_late_answer_is_taken_for_another(paste: str, attempts: int) -> None:
    for late, silences in product(range(7), range(1, 8)):
        board, repl = LateBoard(paste, late, silences), RawRepl(None)
        assert gets_in_step(board, repl, attempts), f"never in step: {late=} {silences=}"
        assert repl.paste is False


def gets_in_step(board: LateBoard, repl: RawRepl, attempts: int) -> bool:
    """Whether a host that tries again after each silence comes to run code, each time with its own answer."""
    in_step = True
    for _ in range(board.silences + 1):
        try:
            board.play(repl.enter(attempts=attempts) if in_step else repl.recover())
            in_step = True
            for _ in range(2):
                board.play(repl.submit_in_program(CODE))
                assert board.play(repl.output(1)).stdout == b"here"
            board.play(repl.leave())
            return True
        except BusyError:
            continue  # it was left at its prompt
        except TransportTimeout:
            in_step = False
    return False
