r"""A folder of the host that a board mounts: the conversation, and the host's side of it, without I/O.

`mounted_board` is the side of the board.

Board code that opens a file in the mounted folder sends a question in its output, and waits for the answer in its
input. A question is an escape sequence that terminals ignore (APC): `ESC _ ff`, eight digits of a crc32, the question,
`ESC \`. The question is the text of a tuple: its kind and its arguments.

- `('s', path)`: the state of a path. The answer is its type, size and time.
- `('l', path, n)`: entries of a folder from the n-th on, as many as fit; none after the last one.
- `('r', path, offset)`: a piece of a file. The size in the answer's head is that of the file. (The reader of modules
  takes a read that is not full for the end, so `readinto` fills its buffer from several pieces.)
- `('b',)`, `('e', ok)`: the folder is mounted; it is no longer, and whether the user's code went well.

A bare letter in place of all that: `a`, the board has taken a step of the answer; `z`, nothing was mounted any more.

An answer has a head of 22 characters: its kind (`P` plain, `D` deflated, `E` the number of an OSError, `X` the question
was damaged), and in hexadecimal digits the length of the body (4), a crc32 of the content (8), a size (8); then `|`.
The body has no control characters that a prompt acts on: they are escaped. It comes in steps, of which two at a time
fit into the receive buffer of the board: the third is sent when the board has taken the first. So the line does not
wait. The board asks again, twice, if an answer is damaged or stays out.
"""

from __future__ import annotations

import ast
import binascii
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fastflight.protocol.mounted_board import Sizes

START, END = b"\x1b_ff", b"\x1b\\"
# A path that a board can hold is shorter. What looks like a longer question is output.
MAX_QUESTION_BYTES = 1024
HEAD = "%s%04x%08x%08x|"
# What a board's prompt would act on: if the user stops the program, the rest of an answer is typed there.
ESCAPE = 0x10
ESCAPED = bytes((ESCAPE, *b"\x01\x02\x03\x04\x05\n\r"))
# Errors of the board's file functions.
ENOENT, EISDIR = 2, 21


@dataclass(frozen=True, slots=True)
class State:
    """What a path is: a folder or a file, its size in bytes, its time in seconds since 1970."""

    is_folder: bool
    size: int
    modified: int

    @property
    def mode(self) -> int:
        return 0x4000 if self.is_folder else 0x8000


class MountAnswers:
    """The host's side, for one board. `read_file`, `state` and `entries` read the folder, and may raise `OSError`.

    `read_file(path, offset, count)` returns the bytes and the size of the file. Paths begin with a slash.
    """

    def __init__(
        self,
        read_file: Callable[[str, int, int], tuple[bytes, int]],
        state: Callable[[str], State],
        entries: Callable[[str], list[tuple[str, State]]],
        *,
        sizes: Sizes,
        deflate: bool,
    ) -> None:
        """`deflate`: the board can inflate."""
        self._read_file = read_file
        self._state = state
        self._entries = entries
        self._piece, self._step, self._window = sizes.piece, sizes.step, sizes.window
        self._deflate = deflate
        # The end of what was received, if it may be the beginning of a question.
        self._held = b""
        # The steps of the answer that are not sent yet.
        self._steps: deque[bytes] = deque()
        # How many questions about files were answered.
        self.questions = 0
        # Whether the folder is mounted. Output before and after that is not shown.
        self._mounted = False
        # None until the folder is no longer mounted, then whether the user's code went well.
        self.ended: bool | None = None

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Process output of the board. Yield pairs: what to show, and what to send to the board after it."""
        for output, question in self._split(data):
            shown = output if self._mounted else b""
            yield shown, b"" if question is None else self._reply(question)

    def _split(self, data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield pairs: output, and the question after it or None."""
        data = self._held + data
        self._held = b""
        while data:
            before, mark, rest = data.partition(START)
            if not mark:
                keep = next((n for n in range(len(START) - 1, 0, -1) if data.endswith(START[:n])), 0)
                self._held = data[len(data) - keep :]
                yield data[: len(data) - keep], None
                return
            question, end, after = rest.partition(END)
            if not end and len(rest) <= MAX_QUESTION_BYTES:
                self._held = mark + rest
                yield before, None
                return
            if not end or len(question) > MAX_QUESTION_BYTES:
                yield before + mark, None
                data = rest
                continue
            yield before, question
            data = after

    def _end(self, ok: bool) -> None:
        self._mounted = False
        if self.ended is None:
            self.ended = ok

    def _reply(self, question: bytes) -> bytes:
        if question == b"a":
            return self._next_step()
        if question == b"z":
            self._end(False)
            return b""
        try:
            kind, *arguments = ast.literal_eval(question[8:].decode())
            if binascii.crc32(question[8:]) != int(question[:8], 16):
                raise ValueError("damaged")
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return self._send("X", b"", 0)
        if kind == "b":
            self._mounted = True
            return b""
        if kind == "e":
            self._end(bool(arguments and arguments[0]))
            return b""
        self.questions += 1
        try:
            content, size = self._content(kind, arguments)
        except OSError as error:
            return self._send("E", str(EISDIR if error.errno == EISDIR else ENOENT).encode(), 0)
        except (ValueError, TypeError, IndexError):
            return self._send("X", b"", 0)
        if self._deflate and len(packed := _deflated(content, self._window)) < len(content):
            return self._send("D", content, size, packed)
        while len(_escaped(content)) > self._piece * 5 // 4:
            content = content[: len(content) // 2]  # the board asks for the rest
        return self._send("P", content, size)

    def _content(self, kind: str, arguments: list[Any]) -> tuple[bytes, int]:
        path = str(arguments[0])
        if kind == "s":
            state = self._state(path)
            return repr((state.mode, state.size, state.modified)).encode(), 0
        if kind == "r":
            return self._read_file(path, int(arguments[1]), self._piece)
        if kind != "l":
            raise ValueError("no such question")
        lot: list[tuple[str, int, int, int]] = []
        for name, state in self._entries(path)[int(arguments[1]) :]:
            longer = [*lot, (name, state.mode, 0, state.size)]
            if len(repr(longer).encode()) > self._piece:
                break
            lot = longer
        return repr(lot).encode(), 0

    def _send(self, kind: str, content: bytes, size: int, packed: bytes | None = None) -> bytes:
        """Return the head and the first two steps of an answer, and keep the others."""
        body = content if packed is None else packed
        body = _escaped(body)
        head = (HEAD % (kind, len(body), binascii.crc32(content), size)).encode()
        self._steps = deque(body[start : start + self._step] for start in range(0, len(body), self._step))
        return head + self._next_step() + self._next_step()

    def _next_step(self) -> bytes:
        return self._steps.popleft() if self._steps else b""


def _escaped(content: bytes) -> bytes:
    for byte in ESCAPED:
        content = content.replace(bytes((byte,)), bytes((ESCAPE, byte + 64)))
    return content


def _deflated(content: bytes, window: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -window)
    return packer.compress(content) + packer.flush()
