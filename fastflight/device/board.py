"""The operations on one open board, as conversations.

A conversation is a generator that yields what to send and to receive (`fastflight.protocol`); sessions run it over a
port. `Device` creates an `OpenBoard` for each opening of its line, and runs `wake` and `learn` first and `end` last.

An `OpenBoard` keeps the state between conversations: what the board can do, which temporary files of broken writes are
on it, and whether its REPL is in a known state. `dirty` is set while a conversation runs, and stays set if the
conversation breaks. The next conversation then starts with `mend`.
"""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Iterator
from typing import TypeVar

from fastflight.device import answers, listing
from fastflight.device.answers import failure, own_failure
from fastflight.device.capabilities import PROBE, Capabilities, DeviceInfo, parse
from fastflight.device.execute import can_seal, execute
from fastflight.device.listing import FileEntry
from fastflight.device.transfer import digest, staging
from fastflight.device.transfer.download import download
from fastflight.device.transfer.link import BoardLink, receive_window
from fastflight.device.transfer.staging import StagedFile
from fastflight.device.transfer.tree import Tree
from fastflight.device.transfer.types import FileDigest, PartialWrite, Resumption, Transfer, WrittenFile
from fastflight.device.transfer.upload import FileUpload
from fastflight.device.unread_input import BANNER, FOUND, Reader, UnreadInput
from fastflight.errors import BusyError, DeviceError, FileMissing, ProtocolError, RequestError, TransportTimeout
from fastflight.protocol import Conversation, Output, RawRepl, Receive, Send, on_silence, ticking
from fastflight.protocol.agent import AgentRepl
from fastflight.protocol.agent_frames import HELLO, STOP
from fastflight.protocol.aiorepl import AioRepl
from fastflight.protocol.raw_repl import (
    CTRL_A,
    CTRL_B,
    CTRL_D,
    GRACE_SECONDS,
    PROGRAM,
    RECOVERY_ATTEMPTS,
    cut_off,
    no_prompt,
)
from fastflight.service.versions import etag_of
from fastflight.transport.url import LINES, MICROPYTHON

T = TypeVar("T")

# A board answers at its prompt within milliseconds. After opening or a hard reset it may still be booting.
PROMPT_SECONDS, BOOT_SECONDS = 1.0, 3.0
# A line may lose a Ctrl-A.
ENTER_ATTEMPTS = 2
# The most reads of what the board has sent while nobody read it: its last prompt may be in it.
WAITING_READS = 64
WAITING_SECONDS = 0.0001
SHORT_SECONDS = 15.0
# An idle agent answers within 20 ms. It gets more time when the board does not answer at its prompt either.
AGENT_SECONDS = 0.5
BUSY_AGENT_SECONDS = 1.0
BUSY_AGENT_ATTEMPTS = 3
# What the friendly REPL prints before it enters the raw REPL; only the line end if its prompt was read before.
OWN_PROMPT = b">>> \r\n"
# The probe is a long piece of code: on a line that sometimes loses a byte it may need another attempt.
PROBE_ATTEMPTS = 4
# A board without crc32 cannot check whether code arrived unchanged.
_MISSING = re.compile(rb"ImportError|AttributeError")
# Code that prints nothing for longer is assumed to hang.
CODE_SECONDS = 60.0
# How often a stream delivers an empty piece while the board is silent.
TICK_SECONDS = 0.05
# After this much silence, the received bytes are checked for the banner of a board that was reset.
RESTART_SECONDS = 0.5

ADD_KIND = "If it only prints, add ?kind=lines to its address"

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
STOP_AGENT = b"""\
import sys
a=sys.modules.get('fastflight_agent')
if a and a.t:a.t.deinit()
"""
HARD_RESET = b"import machine as _ff\n_ff.reset()\n"


class OpenBoard:
    """One open board. Its methods are conversations; `wake` and `learn` come first, `end` last."""

    def __init__(
        self, paste: bool | None = None, unread: UnreadInput | None = None, grace: float = GRACE_SECONDS
    ) -> None:
        """`paste`: whether the board supports raw paste; None to find out.

        `unread` is that of the line, which passes it what the board sends. `grace`: what an interrupted program gets to
        clean up, in seconds.
        """
        self.repl = RawRepl(paste)
        self._unread = unread or UnreadInput()
        self._grace = grace
        # The agent is asked first. Set when it has announced itself.
        self.agent = False
        self._paste = paste
        self.dirty = False
        # While `dirty`: it is a user's code, which may have to clean up.
        self.runs_user_code = False
        self._booting = True
        self._link: BoardLink | None = None
        # The retries on earlier links.
        self._lost_retries = 0
        self._staged: builtins.list[StagedFile] = []
        # How often something was done that may change files of the board.
        self.changes = 0

    @property
    def retries(self) -> int:
        """How often a part of a transfer was lost or changed on the line and sent again."""
        return self._lost_retries + (0 if self._link is None else self._link.retries)

    @property
    def link(self) -> BoardLink:
        """The state of the line and the board for transfers. Available after `learn`."""
        if self._link is None:
            raise RuntimeError("the board's capabilities are not known yet: run learn() first")
        return self._link

    @property
    def capabilities(self) -> Capabilities:
        """What the board can do. Available after `learn`."""
        return self.link.capabilities

    @property
    def hung_by_probe(self) -> bool:
        """Whether the board stopped answering when it was asked for raw paste, as the WebAssembly port does."""
        hung = self._paste is None and self.repl.paste is False and self._link is None
        return hung and self.repl.beside == "none"

    def wake(self, *, interrupt: bool) -> Conversation[None]:
        """Enter the raw REPL, so that other conversations can run.

        With `interrupt`, stop a program that runs on the board; without it, raise `BusyError`, and send no more than
        `UnreadInput` allows.
        """
        if self.dirty and not (interrupt and self.repl.beside != "none"):
            # The board still runs fastflight's code, or ran it when the line broke.
            yield from self.mend()
        elif interrupt:
            yield from self._interrupt()
        else:
            try:
                yield from self._ask()
            except BusyError:
                self._unread.unanswered()
                raise
            finally:
                self._booting = False
        self._unread.answered()
        if self._link is not None and self._link.repl is not self.repl:
            # Another REPL than before: the board may have been reset.
            self._lost_retries += self._link.retries
            self._link = None

    def _ask(self) -> Conversation[None]:
        """Reach the board's prompt, or what answers beside its program. Raise `BusyError` if nobody answers."""
        if self._unread.reader is not Reader.REPL:
            # It may have come to its prompt since the last request.
            with contextlib.suppress(TransportTimeout):
                for _ in range(WAITING_READS):
                    yield Receive(WAITING_SECONDS)
        if not self._unread.may_ask(1):
            raise self.no_answer()
        if self.agent and (yield from self._enter_agent(AGENT_SECONDS)):
            return
        try:
            yield from self._enter_politely()
        except BusyError:
            if not self.agent or not (yield from self._enter_agent(BUSY_AGENT_SECONDS, BUSY_AGENT_ATTEMPTS)):
                raise

    def _enter_politely(self) -> Conversation[None]:
        # aiorepl does not answer to Ctrl-B.
        if self._unread.reader is not Reader.REPL and not self._unread.aiorepl and not self.agent:
            self._send_unread(CTRL_B)
            booting = self._booting and not (self._unread.prints and self._unread.is_settled(BOOT_SECONDS))
            answer = yield from self.repl.find_prompt(FOUND, BOOT_SECONDS if booting else PROMPT_SECONDS)
            if not answer and self._unread.was_pasting:
                # Raw paste has taken the Ctrl-B for code, and Ctrl-D ends it. Nothing of it runs: Ctrl-B is no Python.
                self._send_unread(CTRL_D + CTRL_B)
                self._unread.was_pasting = False  # not sent again: a program would be restarted when it ends
                yield Send(CTRL_D)
                answer = yield from self.repl.find_prompt(FOUND, PROMPT_SECONDS)
            if not answer:
                raise self.no_answer()
            if BANNER.search(answer):
                self._unread.answered()
        attempts = ENTER_ATTEMPTS if self._unread.reader is Reader.REPL else 1
        self._send_unread(CTRL_A * attempts + CTRL_B)
        yield from self.repl.enter(attempts=attempts)
        self._unread.answered()
        yield from self._find_aiorepl(interrupt=False)

    def _send_unread(self, data: bytes) -> None:
        """Count what is sent to a board that may not read it. Raise `BusyError` if that is too much."""
        if not self._unread.may_ask(len(data)):
            raise self.no_answer()
        self._unread.sent(len(data))

    def no_answer(self) -> BusyError:
        """Return the error for a board that does not answer to a request, by what it is."""
        if self._unread.is_cut_off:
            return cut_off()
        if self._unread.kind == MICROPYTHON:
            return no_prompt()
        if self._unread.kind == LINES:
            return BusyError(
                "the device prints lines, and has not stopped for Ctrl-C: it is not MicroPython, or its program "
                "catches KeyboardInterrupt",
                holder=PROGRAM,
                hint=f"{ADD_KIND}, or reset the board",
            )
        return BusyError(
            "the board does not answer at its prompt: a program is running on it, or it is not MicroPython",
            holder=PROGRAM,
            hint=f"Ask with interrupt=true to stop the program. {ADD_KIND}",
        )

    def _enter_agent(self, within: float, attempts: int = 1) -> Conversation[bool]:
        """Reach the agent on the board. Return false if it does not answer."""
        agent = self.repl if isinstance(self.repl, AgentRepl) else AgentRepl()
        self._use(agent)
        for _ in range(attempts):
            if not self._unread.may_ask(len(HELLO)):
                break
            self._unread.sent(len(HELLO))
            if (yield from agent.reach(within)):
                agent.window = receive_window(agent.platform)
                return True
        self._use(RawRepl(self._paste))
        return False

    def _interrupt(self) -> Conversation[None]:
        """Stop the program and enter the raw REPL of the board."""
        if self.agent and self._unread.may_ask(len(STOP)):
            # Its timer goes on when the program has ended, and would take input from the prompt.
            self._use(agent := AgentRepl())
            self._unread.sent(len(STOP))
            yield from agent.stop(AGENT_SECONDS)
        if self.repl.beside != "none":
            self._use(RawRepl(self._paste))
        self._unread.sent(1 + RECOVERY_ATTEMPTS)
        self._unread.prints = False
        try:
            yield from self.repl.recover(self._grace)
        except TransportTimeout as error:
            self._unread.uninterrupted()
            if self._unread.kind == LINES:
                raise TransportTimeout(error.what, hint=f"{ADD_KIND}. {error.hint}") from error
            raise
        yield from self._find_aiorepl(interrupt=True)
        self._booting = False
        if self.agent:
            # It may not have answered.
            yield from self.repl.execute(STOP_AGENT, SHORT_SECONDS)

    def _find_aiorepl(self, *, interrupt: bool) -> Conversation[None]:
        """Find out whether the aiorepl of a program has answered to Ctrl-A. With `interrupt`, end that program."""
        before = self.repl.before
        if before.endswith(OWN_PROMPT) or (before == b"\r\n" and not self._unread.aiorepl):
            # The board's own prompt has answered: no program has printed this.
            if isinstance(self.repl, AioRepl):
                self._use(RawRepl(self._paste))
                self.repl.traffic.talk()
        elif not isinstance(self.repl, AioRepl):
            raw, aiorepl = self.repl, AioRepl()
            raw.traffic.undecided = True
            self._use(aiorepl)
            try:
                running = yield from aiorepl.is_running()
            except BaseException:
                self._use(raw)
                raise
            finally:
                raw.traffic.undecided = False
            if not running or interrupt:
                self._use(raw)
            if running and interrupt:
                yield from aiorepl.end_program()
                yield from raw.recover()
        self._unread.aiorepl = isinstance(self.repl, AioRepl)
        self.repl.entered = True

    def _use(self, repl: RawRepl) -> None:
        """Continue with `repl`, on the same line."""
        if repl is not self.repl:
            repl.inbox, repl.traffic, repl.entered = self.repl.inbox, self.repl.traffic, False
            repl.traffic.use(repl.beside)
            self.repl = repl

    def learn(self) -> Conversation[None]:
        """Probe what the board can do, unless that is known already."""
        if self._link is None:
            self._link = BoardLink(self.repl, (yield from self.guarded(self._probe())))

    def _probe(self) -> Conversation[Capabilities]:
        # The seal shows that the code arrived unchanged. A board that cannot check it says that something is missing.
        sealed = True
        for attempt in range(PROBE_ATTEMPTS):
            output = yield from self.repl.execute(PROBE, SHORT_SECONDS, sealed=sealed)
            try:
                if output.stderr:
                    raise own_failure(output.stderr, where="")
                found = parse(output.stdout)
                if sealed or not can_seal(self.repl, found):
                    return found
                sealed = True
            except (DeviceError, ProtocolError):
                if attempt == PROBE_ATTEMPTS - 1:
                    raise
                sealed = not _MISSING.search(output.stderr)
        raise ProtocolError("the board's code was changed on the line", hint="Use a lower speed or a better cable")

    def end(self) -> Conversation[None]:
        """Return the board to its friendly prompt. Do nothing after a reset."""
        if self.dirty:
            yield from self.mend()
        if self.repl.entered:
            yield from self.repl.leave()

    def mend(self) -> Conversation[None]:
        """Clean up after a broken conversation: stop its code, return to the raw REPL, remove its temporary files."""
        yield from self.repl.recover(self._grace if self.runs_user_code else 0.0)
        self.runs_user_code = False
        yield from self._clean_up()
        self.dirty = False

    def _clean_up(self) -> Conversation[None]:
        while self._staged:
            yield from staging.clean_up(self.link, self._staged[-1])
            self._staged.pop()

    def guarded(self, conversation: Conversation[T]) -> Conversation[T]:
        """Run `conversation`, after `mend` if need be, with `dirty` set until it ends in a known state."""
        if self.dirty:
            yield from self.mend()
        self.dirty = True
        try:
            result = yield from on_silence(conversation, RESTART_SECONDS, self._check_restart)
        except (DeviceError, RequestError):
            # The board has answered completely, or was sent nothing: the state of its REPL is known.
            yield from self._clean_up()
            self.dirty = False
            raise
        self.dirty = False
        return result

    def streamed(self, conversation: Conversation[T]) -> Conversation[T]:
        """As `guarded`, and deliver `b""` regularly while the board is silent."""
        return ticking(self.guarded(conversation), TICK_SECONDS)

    def _check_restart(self) -> Conversation[None]:
        if self.repl.restarted():
            raise BoardLink.was_reset("")
        yield from ()

    def info(self) -> Conversation[DeviceInfo]:
        """Return the board's platform, version, memory, storage and features. The storage is queried now."""
        known = self.capabilities
        size = free = None
        if known.has("os.statvfs"):
            output = yield from self.repl.execute(STORAGE.encode(), SHORT_SECONDS)
            if not output.stderr:
                size, free = _parse_storage(output.stdout)
        return DeviceInfo(
            kind=MICROPYTHON,
            platform=known.platform,
            version=known.version,
            machine=known.machine,
            unique_id=known.unique_id,
            free_memory=known.free_memory or None,
            storage_bytes=size,
            storage_free=free,
            raw_paste=bool(self.repl.paste),
            capabilities=self.repl.beside,
            features=tuple(sorted(known.features)),
        )

    def list(self, path: str = "/", *, recursive: bool = False) -> Conversation[builtins.list[FileEntry]]:
        """List a folder, ordered by path; with `recursive` the folders below it as well."""
        return (yield from listing.listing(self.repl, self.capabilities, listing.normal_path(path), recursive))

    def stat(self, path: str) -> Conversation[FileEntry]:
        """Return one entry. `FileMissing` if there is none."""
        return (yield from listing.stat(self.repl, self.capabilities, listing.normal_path(path)))

    def read(self, path: str, *, offset: int, limit: int | None, transfer: Transfer) -> Conversation[None]:
        """Deliver the bytes of a file from `offset` on, at most `limit`."""
        return (yield from download(self.link, self._file(path), offset, limit, transfer))

    def write(
        self, path: str, *, resume: Resumption | None, keep: bool, transfer: Transfer, size: int | None = None
    ) -> Conversation[WrittenFile]:
        """Fetch content and write it as the file at `path`, whole or not at all."""
        self.changes += 1
        staged = StagedFile(staging.check_writable(self._file(path)), keep=keep, size=size)
        if resume is None:
            yield from staging.choose_place(self.link, staged)
        self._staged.append(staged)
        with staging.explain_errors(self.link, staged):
            written = yield from FileUpload(self.link, staged, resume, transfer).run()
        self._staged.remove(staged)
        return written

    @contextlib.contextmanager
    def tree(self, folder: str, transfer: Transfer) -> Iterator[Tree]:
        """Write many files below `folder`. If the write breaks off, the next call removes its temporary files."""
        self.changes += 1
        try:
            yield Tree(self.link, listing.normal_path(folder), transfer, self._staged)
        finally:
            self.dirty = self.dirty or bool(self._staged)

    def part(self, path: str) -> Conversation[PartialWrite | None]:
        """Return the part that a broken write with `keep` left; None if no write to `path` can be resumed."""
        return (yield from staging.find_partial_write(self.link, self._file(path)))

    def hashes(self, folder: str = "/") -> Conversation[builtins.list[FileDigest]]:
        """Have the board hash every file below a folder, in one pass. Ordered by path."""
        return (yield from digest.hashes(self.link, listing.normal_path(folder)))

    def version(self, path: str) -> Conversation[str | None]:
        """Return the entity tag of a file; empty for a folder, or if the board computes no digest; None for no file."""
        try:
            entry = yield from self.stat(path)
        except FileMissing:
            return None
        algorithm, hexadecimal = (yield from self.hash(path)) if entry.kind == "file" else ("", "")
        return etag_of(algorithm, hexadecimal, entry.size)

    def remove(self, path: str) -> Conversation[None]:
        """Remove a file or an empty folder. `FileMissing` if there is none."""
        yield from self._do(REMOVE, path)

    def mkdir(self, path: str) -> Conversation[None]:
        """Create a folder. Its parent must exist."""
        self._require("os.mkdir", "folders", path)
        yield from self._do(MKDIR, path)

    def rename(self, path: str, to: str) -> Conversation[None]:
        """Rename a file or folder. A file that has the new path is replaced."""
        self._require("os.rename", "rename", path)
        yield from self._do(RENAME, path, to=self._file(to))

    def hash(self, path: str, *, limit: int | None = None) -> Conversation[tuple[str, str]]:
        """Have the board hash a file, or its first `limit` bytes. Return the algorithm and the hexadecimal digest.

        The algorithm is `sha256` or `crc32`. Both texts are empty if the board can compute neither.
        """
        return (yield from digest.digest(self.link, self._file(path), limit))

    def exec(self, code: str, *, timeout: float = CODE_SECONDS) -> Conversation[Output]:
        """Run code to its end and return its output and traceback. `timeout` bounds each silence, in seconds."""
        encoded = _encoded(code)
        self.changes += 1
        self.runs_user_code = True
        yield from self.repl.submit_in_program(encoded)
        output = yield from self._stop_when_silent(self.repl.output(timeout), timeout)
        self.runs_user_code = False
        return output

    def follow(self, code: str, within: float) -> Conversation[None]:
        """Run code and deliver its output as it comes. If it raises, raise the `DeviceError` for that at the end."""
        encoded = _encoded(code)
        self.changes += 1
        self.runs_user_code = True
        yield from self.repl.submit_in_program(encoded)
        stderr = yield from self._stop_when_silent(self.repl.deliver(within), within)
        self.runs_user_code = False
        if stderr:
            raise failure(stderr, where="", platform=self.capabilities.platform)

    def _stop_when_silent(self, output: Conversation[T], within: float) -> Conversation[T]:
        """Receive `output`. Stop code that is silent for `within` seconds, and raise `TransportTimeout`."""
        try:
            return (yield from output)
        except TransportTimeout:
            what = f"the code wrote nothing for {within:g} s"
            try:
                yield from self.repl.recover(self._grace)
            except TransportTimeout as error:
                hint = "Reset the board, or plug it in again"
                raise TransportTimeout(f"{what} and cannot be stopped: {error.what}", hint=hint) from error
            hint = "The device is ready. Allow a longer timeout for code that is silent for longer"
            raise TransportTimeout(f"{what} and was stopped", hint=hint) from None

    def soft_reset(self, *, main: bool = True) -> Conversation[None]:
        """Restart the interpreter, with `boot.py`, and with `main.py` if `main`. This ends the session: close it."""
        self.changes += 1
        self.link.resident.forget()
        yield from self.repl.soft_reset(main=main)
        self._unread.forget()

    def hard_reset(self) -> Conversation[None]:
        """Restart the board. It stops answering, and its port may disappear for a while."""
        self.changes += 1
        self._require("machine.reset", "machine.reset", "reset")
        self.link.resident.forget()
        yield from self.repl.send_code(HARD_RESET)
        self._unread.forget(empty=True)
        self.repl.entered = False
        self._booting = True

    def _do(self, code: str, path: str, **names: str) -> Conversation[None]:
        self.changes += 1
        path = self._file(path)
        native = {name: self.capabilities.native_path(value) for name, value in names.items()}
        code = code.format(path=self.capabilities.native_path(path), **native)
        yield from execute(self.repl, self.capabilities, code, path, SHORT_SECONDS)

    def _file(self, path: str) -> str:
        """Return the absolute form of `path`. `RequestError` for the root."""
        path = listing.normal_path(path)
        if path == "/":
            raise RequestError("the root folder cannot be used here", where=path, hint="Name a file or folder in it")
        return path

    def _require(self, feature: str, what: str, where: str) -> None:
        if not self.capabilities.has(feature):
            raise DeviceError(f"this board has no {what}", where=where, hint="Its firmware does not offer it")


def _parse_storage(stdout: bytes) -> tuple[int, int]:
    """Parse the output of `STORAGE`: size and free space in bytes."""
    try:
        size, free = answers.literal(stdout.decode("utf-8", "replace").strip())
        return answers.integer(size), answers.integer(free)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"the board said {stdout[:200]!r} of its storage", hint="Ask again") from error


def _encoded(code: str) -> bytes:
    """The bytes of a user's code. What was no UTF-8 on a command line arrives as half a character."""
    try:
        return code.encode()
    except UnicodeEncodeError as error:
        wrong = code[error.start : error.end]
        raise RequestError(f"the code holds {wrong!r}, which is no character", hint="Write it in UTF-8") from None
