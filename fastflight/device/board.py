"""Everything that can be asked of one open board, as conversations.

A conversation is a generator that yields what to send and to receive (`fastflight.protocol`); sessions run it over a
port. `Device` makes an `OpenBoard` for each opening of its line, runs `wake` and `learn` first and `end` last.

An `OpenBoard` keeps what must be known between two conversations: what the board can do, which files of broken writes
lie on it, and whether its prompt is where we expect it. `dirty` is set while a conversation runs, and stays set when
the conversation breaks; the next one then begins with `mend`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from fastflight.device import answers, listing
from fastflight.device.answers import failure, own_failure
from fastflight.device.capabilities import PROBE, Capabilities, DeviceInfo, parse
from fastflight.device.execute import execute
from fastflight.device.listing import FileEntry
from fastflight.device.transfer import digest, orphaned_transfer, staging
from fastflight.device.transfer.download import download
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import StagedFile
from fastflight.device.transfer.tree import Tree
from fastflight.device.transfer.types import Hashed, PartialWrite, Resumption, Transfer, WrittenFile
from fastflight.device.transfer.upload import FileUpload
from fastflight.errors import BusyError, DeviceError, ProtocolError, RequestError, TransportTimeout
from fastflight.protocol import Conversation, Output, RawRepl, Send, on_silence, ticking

T = TypeVar("T")

# After opening or a hard reset a board may still be booting, and hear nothing: this many tries, of a second each.
FIRST_ATTEMPTS = 3
SHORT_SECONDS = 15.0
# The probe is the longest piece of code: a line that loses a byte now and then may need another.
PROBE_ATTEMPTS = 3
# How often a stream says that it is alive while the board is silent.
TICK_SECONDS = 0.05
# How soon a board that was reset in the middle of something is found out.
RESTART_SECONDS = 0.5

REMOVE = """\
import os
try:
 d=os.stat({path!r})[0]&0x4000
except AttributeError:
 d=0
if d:
 os.rmdir({path!r})
else:
 os.remove({path!r})
"""
MKDIR = "import os\nos.mkdir({path!r})\n"
RENAME = "import os\nos.rename({path!r},{to!r})\n"
STORAGE = "import os\ns=os.statvfs('/')\nprint(repr((s[1]*s[2],s[1]*s[3])))\n"
HARD_RESET = b"import machine\nmachine.reset()\n"


class OpenBoard:
    """One open board. Its methods are conversations; `wake` and `learn` come first, `end` last."""

    def __init__(self, paste: bool | None = None) -> None:
        """`paste`: whether it takes raw paste; None to find out."""
        self.repl = RawRepl(paste)
        self._paste = paste
        self.dirty = False
        self._booting = True
        self._link: BoardLink | None = None
        self._staged: list[StagedFile] = []

    @property
    def retries(self) -> int:
        """How often something was lost on the way, and sent again."""
        return 0 if self._link is None else self._link.retries

    @property
    def link(self) -> BoardLink:
        """The line and what is known of it and the board; there once `learn` is done."""
        if self._link is None:
            raise RuntimeError("the board was not asked yet what it can do: run learn() first")
        return self._link

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do; known once `learn` is done."""
        return self.link.capabilities

    @property
    def hung_by_probe(self) -> bool:
        """Whether the board stopped answering when it was asked for raw paste, as the WebAssembly port does."""
        return self._paste is None and self.repl.paste is False and self._link is None

    def wake(self, *, interrupt: bool) -> Conversation[None]:
        """Make the board ready for other conversations.

        A program that runs on it is stopped only with `interrupt`; without, `BusyError`. A transfer that another host
        abandoned is always stopped (`orphaned_transfer`).
        """
        if self.dirty:
            # The board runs code of ours, or did when the line broke.
            yield from self.mend()
        else:
            try:
                yield from self.repl.enter(interrupt=interrupt, attempts=FIRST_ATTEMPTS if self._booting else 1)
            except BusyError:
                if not (yield from orphaned_transfer.is_orphaned(self.repl)):
                    raise
                yield from self.mend()
        self._booting = False

    def learn(self) -> Conversation[None]:
        """Find out what the board can do, if that is not known."""
        if self._link is None:
            self._link = BoardLink(self.repl, (yield from self.guarded(self._probe())))

    def _probe(self) -> Conversation[Capabilities]:
        for _ in range(PROBE_ATTEMPTS):
            output = yield from self.repl.execute(PROBE, SHORT_SECONDS)
            if not output.stderr:
                return parse(output.stdout)
        raise own_failure(output.stderr, where="")

    def end(self) -> Conversation[None]:
        """Leave the board at its friendly prompt, or as a reset left it."""
        if self.dirty:
            yield from self.mend()
        if self.repl.entered:
            yield from self.repl.leave()

    def mend(self) -> Conversation[None]:
        """After a broken conversation: stop what it started, get in step, and remove what it left behind."""
        yield from self.repl.recover()
        yield from self._settle()
        self.dirty = False

    def _settle(self) -> Conversation[None]:
        while self._staged:
            yield from staging.settle(self.link, self._staged[-1])
            self._staged.pop()

    def guarded(self, conversation: Conversation[T]) -> Conversation[T]:
        """`conversation`, after mending what is broken, with `dirty` set until its outcome is known."""
        if self.dirty:
            yield from self.mend()
        self.dirty = True
        try:
            result = yield from on_silence(conversation, RESTART_SECONDS, self._check_restart)
        except (DeviceError, RequestError):
            # The board answered, or was not asked: it is in step.
            yield from self._settle()
            self.dirty = False
            raise
        self.dirty = False
        return result

    def streamed(self, conversation: Conversation[T]) -> Conversation[T]:
        """As `guarded`, delivering `b""` while the board is silent."""
        return ticking(self.guarded(conversation), TICK_SECONDS)

    def _check_restart(self) -> Conversation[None]:
        if self.repl.restarted():
            raise BoardLink.was_reset("")
        yield from ()

    def info(self) -> Conversation[DeviceInfo]:
        """What the board says of itself, now."""
        known = self.capabilities
        size = free = None
        if known.has("os.statvfs"):
            output = yield from self.repl.execute(STORAGE.encode(), SHORT_SECONDS)
            if not output.stderr:
                size, free = _storage(output.stdout)
        return DeviceInfo(
            platform=known.platform,
            version=known.version,
            machine=known.machine,
            unique_id=known.unique_id,
            free_memory=known.free_memory or None,
            storage_bytes=size,
            storage_free=free,
            raw_paste=bool(self.repl.paste),
            features=tuple(sorted(known.features)),
        )

    def listing(self, path: str, *, recursive: bool) -> Conversation[list[FileEntry]]:
        """The entries of a folder, ordered by path."""
        return (yield from listing.listing(self.repl, self.capabilities, listing.normal_path(path), recursive))

    def stat(self, path: str) -> Conversation[FileEntry]:
        """One entry."""
        return (yield from listing.stat(self.repl, self.capabilities, listing.normal_path(path)))

    def read(self, path: str, *, offset: int, limit: int | None, transfer: Transfer) -> Conversation[None]:
        """Deliver the bytes of a file from `offset` on, at most `limit`."""
        return (yield from download(self.link, self._file(path), offset, limit, transfer))

    def write(
        self, path: str, *, resume: Resumption | None, keep: bool, transfer: Transfer
    ) -> Conversation[WrittenFile]:
        """Fetch content and make it a file, whole or not at all."""
        staged = StagedFile(staging.writable(self._file(path)), keep=keep)
        if resume is None:
            yield from staging.choose_place(self.link, staged)
        self._staged.append(staged)
        with staging.explained(self.link, staged):
            written = yield from FileUpload(self.link, staged, resume, transfer).run()
        self._staged.remove(staged)
        return written

    @contextlib.contextmanager
    def tree(self, folder: str, transfer: Transfer) -> Iterator[Tree]:
        """A write of many files below `folder`. What it leaves when it is broken off is removed by the next call."""
        try:
            yield Tree(self.link, listing.normal_path(folder), transfer, self._staged)
        finally:
            self.dirty = self.dirty or bool(self._staged)

    def part(self, path: str) -> Conversation[PartialWrite | None]:
        """What a broken write to `path` left that can be resumed."""
        return (yield from staging.find_partial_write(self.link, self._file(path)))

    def hashes(self, folder: str) -> Conversation[list[Hashed]]:
        """Every file below `folder` with its digest."""
        return (yield from digest.hashes(self.link, listing.normal_path(folder)))

    def remove(self, path: str) -> Conversation[None]:
        """Remove a file or an empty folder."""
        yield from self._do(REMOVE, path)

    def mkdir(self, path: str) -> Conversation[None]:
        """Make a folder; its parent must exist."""
        self._needs("os.mkdir", "folders", path)
        yield from self._do(MKDIR, path)

    def rename(self, path: str, to: str) -> Conversation[None]:
        """Give a file or folder another path. A file that has that path is replaced."""
        self._needs("os.rename", "rename", path)
        yield from self._do(RENAME, path, to=self._file(to))

    def digest(self, path: str, limit: int | None = None) -> Conversation[tuple[str, str]]:
        """The algorithm (`sha256`, `crc32`, or empty) and the hexadecimal digest that the board takes of a file."""
        return (yield from digest.digest(self.link, self._file(path), limit))

    def execute(self, code: str, within: float) -> Conversation[Output]:
        """Run a short piece of code; its output and traceback."""
        yield from self.repl.submit(code.encode())
        return (yield from self._stopping(self.repl.output(within), within))

    def follow(self, code: str, within: float) -> Conversation[None]:
        """Run code and deliver its output as it comes. Its exception is raised at the end."""
        yield from self.repl.submit(code.encode())
        stderr = yield from self._stopping(self.repl.deliver(within), within)
        if stderr:
            raise failure(stderr, where="", platform=self.capabilities.platform)

    def _stopping(self, output: Conversation[T], within: float) -> Conversation[T]:
        """Receive the output of code that runs. Stops code that is silent for `within` seconds: `TransportTimeout`."""
        try:
            return (yield from output)
        except TransportTimeout:
            silent = f"the code wrote nothing for {within:g} s"
            try:
                yield from self.repl.recover()
            except TransportTimeout as error:
                hint = "Reset the board, or plug it in again"
                raise TransportTimeout(f"{silent} and cannot be stopped: {error.what}", hint=hint) from error
            hint = "The device is ready. Allow a longer timeout for code that is silent for longer"
            raise TransportTimeout(f"{silent} and was stopped", hint=hint) from None

    def soft_reset(self) -> Conversation[None]:
        """Restart the interpreter, `boot.py` and `main.py`. The session is over: close it."""
        self.link.resident.forget()
        yield from self.repl.soft_reset()

    def hard_reset(self) -> Conversation[None]:
        """Restart the board. It does not answer any more, and its port may vanish for a while."""
        self._needs("machine.reset", "machine.reset", "reset")
        self.link.resident.forget()
        yield Send(HARD_RESET + b"\x04")
        self.repl.entered = False
        self._booting = True

    def _do(self, code: str, path: str, **names: str) -> Conversation[None]:
        path = self._file(path)
        spelled = {name: self.capabilities.spelled(value) for name, value in names.items()}
        code = code.format(path=self.capabilities.spelled(path), **spelled)
        yield from execute(self.repl, self.capabilities, code, path, SHORT_SECONDS)

    def _file(self, path: str) -> str:
        """The absolute form of a path that is not the root."""
        path = listing.normal_path(path)
        if path == "/":
            raise RequestError("the root folder cannot be used here", where=path, hint="Name a file or folder in it")
        return path

    def _needs(self, feature: str, what: str, where: str) -> None:
        if not self.capabilities.has(feature):
            raise DeviceError(f"this board has no {what}", where=where, hint="Its firmware does not offer it")


def _storage(stdout: bytes) -> tuple[int, int]:
    """What `STORAGE` printed."""
    try:
        size, free = answers.value(stdout.decode("utf-8", "replace").strip())
        return answers.whole(size), answers.whole(free)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board said {stdout[:200]!r} of its storage", hint="Ask again") from error
