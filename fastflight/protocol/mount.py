r"""A folder of the host that a board mounts: the conversation, and the host's side of it, without I/O.

`mounted_board` is the side of the board.

Board code that opens a file in the mounted folder sends a question in its output, and waits for the answer in its
input. A question is an escape sequence that terminals ignore (APC): `ESC _ ff`, eight digits of a crc32, the question,
`ESC \`. The question is the text of a tuple: its kind and its arguments.

- `('s', path)`: the state of a path. The answer is its type, size and time.
- `('l', path, n)`: entries of a folder from the n-th on, as many as fit; none after the last one.
- `('r', path, offset)`: a piece of a file. The size in the answer's head is that of the file. (The reader of modules
  takes a read that is not full for the end, so `readinto` fills its buffer from several pieces.)
- `('o', n, path, mode)`: open a file to write it. The answer is its number, which can stand in place of a path in `r`.
- `('d', n, number, offset, base64)`, `('c', n, number)`: write a piece of it; close it.
- `('u', n, path)`, `('m', n, path)`, `('k', n, path)`: remove a file; make, remove a folder.
- `('v', n, old, new)`: rename.
- `('b',)`, `('e', ok)`: the folder is mounted; it is no longer, and whether the user's code went well.

What changes something is numbered by `n`: asked again, it is not done again, but answered again.

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
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fastflight.protocol.mounted_board import Sizes
from fastflight.protocol.raw_repl import SOFT_REBOOT

START, END = b"\x1b_ff", b"\x1b\\"
# A path that a board can hold is shorter. What looks like a longer question is output.
MAX_QUESTION_BYTES = 1024
HEAD = "%s%04x%08x%08x|"
# What a board's prompt would act on: if the user stops the program, the rest of an answer is typed there.
ESCAPE = 0x10
ESCAPED = bytes((ESCAPE, *b"\x01\x02\x03\x04\x05\n\r"))
# The numbers of errors on boards are those of Linux. Any other error is EIO.
EIO = 5
NUMBERS = {
    errno.EPERM: 1,
    errno.ENOENT: 2,
    errno.EBADF: 9,
    errno.EACCES: 13,
    errno.EEXIST: 17,
    errno.ENOTDIR: 20,
    errno.EISDIR: 21,
    errno.EINVAL: 22,
    errno.EMFILE: 24,
    errno.ENOSPC: 28,
    errno.EROFS: 30,
    errno.ENAMETOOLONG: 36,
    errno.ENOTEMPTY: 39,
}
# The board's own prompt, which appears after a soft reset when its `main.py` has ended.
PROMPT = b"\r\n>>> "


@dataclass(frozen=True, slots=True)
class State:
    """What a path is: a folder or a file, its size in bytes, its time in seconds since 1970."""

    is_folder: bool
    size: int
    modified: int

    @property
    def mode(self) -> int:
        return 0x4000 if self.is_folder else 0x8000


class Files(Protocol):
    """The folder. Paths begin with a slash. Every method may raise `OSError`."""

    def read(self, what: str | int, offset: int, count: int) -> tuple[bytes, int]:
        """Return at most `count` bytes and the size, of a path or of the number of a file that is written."""

    def state(self, path: str) -> State: ...

    def entries(self, path: str) -> list[tuple[str, State]]: ...

    def open(self, path: str, mode: str) -> tuple[int, int]:
        """Open a file to write it. Return its number and its size."""

    def write(self, number: int, offset: int, data: bytes) -> None: ...

    def close_file(self, number: int) -> None: ...

    def remove(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...


class MountAnswers:
    """The host's side, for one board and one time that it mounts the folder."""

    def __init__(self, files: Files, *, sizes: Sizes, deflate: bool) -> None:
        """`deflate`: the board can inflate."""
        self._files = files
        self._changes: dict[str, Callable[..., None]] = {
            "c": files.close_file,
            "u": files.remove,
            "m": files.mkdir,
            "k": files.rmdir,
            "v": files.rename,
        }
        # The last change, by its number, and its answer: its kind, its content and a size.
        self._last: tuple[int, tuple[str, bytes, int]] = (0, ("X", b"", 0))
        self._piece, self._step, self._window = sizes.piece, sizes.step, sizes.window
        self._deflate = deflate
        # The end of what was received, if it may be the beginning of a question.
        self._held = b""
        # The steps of the answer that are not sent yet.
        self._steps: deque[bytes] = deque()
        # Whether the folder is mounted. Output before and after that is not shown.
        self._mounted = False
        # The end of what the board printed, and whether a soft reset has unmounted the folder and its prompt is back.
        self._tail = b""
        self.was_reset = False
        # None until the folder is no longer mounted, then whether the user's code went well.
        self.ended: bool | None = None

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Process output of the board. Yield pairs: what to show, and what to send to the board after it."""
        for output, question in self._split(data):
            shown = output if self._mounted else b""
            self._look_for_reset(shown)
            yield shown, b"" if question is None else self._reply(question)

    def _look_for_reset(self, shown: bytes) -> None:
        before, mark, after = (self._tail + shown).rpartition(SOFT_REBOOT)
        # As long as the program of the board prints, only the mark and the beginning of a prompt are kept.
        self._tail = mark + after[-len(PROMPT) :] if mark else after[-len(SOFT_REBOOT) :]
        self.was_reset = self.was_reset or (bool(mark) and after.endswith(PROMPT))

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
        try:
            kind, content, size = self._answer(kind, arguments)
        except OSError as error:
            kind, content, size = _failure(error)
        except (ValueError, TypeError, IndexError, OverflowError):
            kind, content, size = "X", b"", 0
        if kind == "P" and self._deflate and len(packed := _deflated(content, self._window)) < len(content):
            return self._send("D", content, size, packed)
        while len(_escaped(content)) > self._piece * 5 // 4:
            content = content[: len(content) // 2]  # the board asks for the rest
        return self._send(kind, content, size)

    def _answer(self, kind: str, arguments: list[Any]) -> tuple[str, bytes, int]:
        """Return the kind of the answer, its content, and a size."""
        if kind == "s":
            state = self._files.state(str(arguments[0]))
            return "P", repr((state.mode, state.size, state.modified)).encode(), 0
        if kind == "r":
            what = arguments[0] if isinstance(arguments[0], int) else str(arguments[0])
            return "P", *self._files.read(what, int(arguments[1]), self._piece)
        if kind == "l":
            return "P", self._entries(str(arguments[0]), int(arguments[1])), 0
        number, *rest = arguments
        if self._last[0] != int(number):
            try:
                answer = "P", *self._change(kind, rest)
            except OSError as error:
                answer = _failure(error)
            self._last = int(number), answer
        return self._last[1]

    def _change(self, kind: str, arguments: list[Any]) -> tuple[bytes, int]:
        if kind == "o":
            number, size = self._files.open(str(arguments[0]), str(arguments[1]))
            return str(number).encode(), size
        if kind == "d":
            number, offset, data = arguments
            self._files.write(int(number), int(offset), binascii.a2b_base64(data))
        else:
            if kind not in self._changes:
                raise ValueError("no such question")
            self._changes[kind](*arguments)
        return b"", 0

    def _entries(self, path: str, start: int) -> bytes:
        """Return entries of a folder, as many as fit, as text."""
        entries: list[tuple[str, int, int, int]] = []
        for name, state in self._files.entries(path)[start:]:
            longer = [*entries, (name, state.mode, 0, state.size)]
            if len(repr(longer).encode()) > self._piece:
                break
            entries = longer
        return repr(entries).encode()

    def _send(self, kind: str, content: bytes, size: int, packed: bytes | None = None) -> bytes:
        """Return the head and the first two steps of an answer, and keep the others."""
        body = content if packed is None else packed
        body = _escaped(body)
        head = (HEAD % (kind, len(body), binascii.crc32(content), size)).encode()
        self._steps = deque(body[start : start + self._step] for start in range(0, len(body), self._step))
        return head + self._next_step() + self._next_step()

    def _next_step(self) -> bytes:
        return self._steps.popleft() if self._steps else b""


def _failure(error: OSError) -> tuple[str, bytes, int]:
    return "E", str(NUMBERS.get(error.errno or 0, EIO)).encode(), 0


def _escaped(content: bytes) -> bytes:
    for byte in ESCAPED:
        content = content.replace(bytes((byte,)), bytes((ESCAPE, byte + 64)))
    return content


def _deflated(content: bytes, window: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -window)
    return packer.compress(content) + packer.flush()
