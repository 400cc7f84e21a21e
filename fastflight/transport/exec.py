"""`exec:COMMAND`: a child process on a pseudo-terminal, such as MicroPython's unix port or an emulator.

The terminal is set raw before the child starts: a child that finds it cooked would inherit echo and line editing while
it runs code. It is the child's controlling terminal. The child gets a folder of its own to run in (`?cwd=DIR` names
one); it runs with the rights of this process, so a MicroPython that is given here sees the host's files.

`ExecAddress.open` gives a `ChildPort`, which outlives a soft reset of the child (`child`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport.child import ChildPort
from fastflight.transport.descriptor import DescriptorPort

# A child that was asked to end gets this long before it is killed.
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.01
# Of a child that has ended: how soon its terminal gives what it said last, and how long what it left running is heard.
LAST_SECONDS = 0.1
LAST_WORDS_SECONDS = 1.0
# Asks whether there is anybody to signal.
NO_SIGNAL = 0
CTRL_C = b"\x03"
# Of what `termios.tcgetattr` gives.
LOCAL_FLAGS = 3
# The shell is the leader of a new session without a terminal, so the first one that it opens becomes the session's
# controlling terminal. Then the command takes its place. Python has no other way that runs no code of its own between
# fork and exec, where other threads may hold locks.
SHELL = "/bin/sh"
ON_TERMINAL = 'exec <"$0" >"$0" 2>"$0"; exec "$@"'
# The token that the user's commands show to servers. A child may print what it inherits to everybody who can hear it.
SECRETS = frozenset(("FASTFLIGHT_TOKEN",))


@dataclass(slots=True)
class ExecAddress:
    """A command to run. Without `cwd` it runs in a temporary folder that lives as long as the address."""

    url: str
    command: str
    cwd: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def open(self, timeout: float) -> ChildPort:
        return ChildPort(self._start, self.url)

    def _start(self) -> ExecPort:
        if sys.platform == "win32":
            raise TransportError(
                "a child on a terminal needs a POSIX system", where=self.url, hint="Use socket:// or serial:// here"
            )
        import pty
        import tty

        try:
            if self.cwd is None and self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="fastflight-exec-")
            ours, theirs = pty.openpty()
        except OSError as error:
            raise self._no_terminal(error) from error
        folder = self.cwd or (self._folder.name if self._folder else ".")
        try:
            tty.setraw(theirs)
            _mark(theirs)
            program, *arguments = shlex.split(self.command)
            child = subprocess.Popen(  # noqa: S603  # the command that the fleet file names; the shell reads none of it
                [SHELL, "-c", ON_TERMINAL, os.ttyname(theirs), _runnable(program, folder), *arguments],
                # Until the shell has opened it: a terminal that nobody has open hangs up.
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=folder,
                env=child_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(ours)
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise TransportError(
                f"cannot start the command ({reason})", where=self.url, hint="Check that it is installed and on PATH"
            ) from error
        finally:
            os.close(theirs)
        try:
            return ExecPort(ours, self.url, child)
        except OSError as error:
            _end(ours, child)
            raise self._no_terminal(error) from error

    def _no_terminal(self, error: OSError) -> TransportError:
        missing = os.strerror(error.errno) if error.errno else str(error)
        return TransportError(
            f"no terminal for the command ({missing})", where=self.url, hint="Try again when fewer are open"
        )

    def dispose(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class ExecPort(DescriptorPort):
    """The terminal of a child. `process` is for whoever wants to know how it ended; closing the port ends it.

    Ctrl-C is a byte to a child, except to one that manages the terminal as MicroPython's unix port does: that reads
    Ctrl-C at its prompts, and catches SIGINT instead while it runs code. Children that leave the terminal as it is, as
    emulators do, get every byte.
    """

    def __init__(self, descriptor: int, where: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(descriptor, where, lambda: _end(descriptor, process))
        self.process = process
        self._manages_terminal = False
        # When its last words are over, once it has ended. `_end_watch`, where the system has it, is readable from its
        # end on.
        self._over: float | None = None
        self._end_watch: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # not on this system, or not allowed
            self._end_watch = os.pidfd_open(process.pid)

    def close(self) -> None:
        super().close()
        watch, self._end_watch = self._end_watch, None
        if watch is not None:
            os.close(watch)

    def read(self, timeout: float) -> bytes:
        if not self._has_ended():
            try:
                return super().read(timeout)
            except TransportTimeout:
                if not self._has_ended():
                    raise
        with self._last_words():
            return super().read(LAST_SECONDS)

    def write(self, data: bytes, timeout: float) -> None:
        with self._no_taker():
            super().write(self._without_interrupts(data), timeout)

    async def aread(self, timeout: float) -> bytes:
        if not self._has_ended():
            try:
                return await super().aread(timeout)
            except TransportTimeout:
                if not self._has_ended():
                    raise
        with self._last_words():
            return await super().aread(LAST_SECONDS)

    async def awrite(self, data: bytes, timeout: float) -> None:
        with self._no_taker():
            await super().awrite(self._without_interrupts(data), timeout)

    def _try_write(self, data: memoryview) -> int:
        written = super()._try_write(data)
        # A terminal that hangs up while it is full reports room for ever.
        if not written and self._has_ended():
            raise TransportClosed("the process has ended", where=self._where)
        return written

    def _has_ended(self) -> bool:
        if self._over is None and self.process.poll() is not None:
            self._over = time.monotonic() + LAST_WORDS_SECONDS
        return self._over is not None

    @contextlib.contextmanager
    def _last_words(self) -> Iterator[None]:
        """Read what the child said before it ended. What it left running may hold the terminal, and talk on."""
        if self._over is not None and time.monotonic() < self._over:
            with contextlib.suppress(TransportTimeout):
                yield
                return
        raise TransportClosed("the process has ended", where=self._where)

    @contextlib.contextmanager
    def _no_taker(self) -> Iterator[None]:
        """A child that has ended takes nothing, even if what it left running holds the terminal."""
        try:
            yield
        except TransportTimeout:
            if self._has_ended():
                raise TransportClosed("the process has ended", where=self._where) from None
            raise

    def _also(self) -> tuple[int, ...]:
        """The end of the child ends a wait, until it is known."""
        return (self._end_watch,) if self._end_watch is not None and self._over is None else ()

    def _without_interrupts(self, data: bytes) -> bytes:
        """Interrupt the child if it waits for a signal. What is left of `data` for the terminal."""
        if self._manages_terminal and CTRL_C not in data:
            return data
        marked = _is_marked(self._descriptor) if not self._closed else True
        self._manages_terminal = self._manages_terminal or not marked
        if (
            CTRL_C not in data
            or not self._manages_terminal
            or not _catches_interrupts(self.process.pid, default=marked)
        ):
            return data
        self.process.send_signal(signal.SIGINT)
        return data.replace(CTRL_C, b"")


def child_environment() -> dict[str, str]:
    """The environment of this process, without its secrets."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _mark(terminal: int) -> None:
    """Mark the raw `terminal` by a flag that has no effect on it: a child that sets the terminal clears the flag."""
    import termios

    attributes = termios.tcgetattr(terminal)
    attributes[LOCAL_FLAGS] |= termios.ECHOE
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _is_marked(terminal: int) -> bool:
    """Whether the terminal is as the child found it; asked of either side of it."""
    import termios

    try:
        return bool(termios.tcgetattr(terminal)[LOCAL_FLAGS] & termios.ECHOE)
    except termios.error:  # it hangs up
        return True


def _catches_interrupts(process: int, *, default: bool) -> bool:
    """Whether the process catches SIGINT, which would end it otherwise; `default` where the system does not say."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return default
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def _runnable(program: str, folder: str) -> str:
    """`program`, which is to run in `folder`. `OSError` where it cannot: the shell would say so on the terminal."""
    path = os.path.join(folder, program) if os.sep in program else program
    if shutil.which(path) is None:
        missing = errno.EACCES if os.path.exists(path) else errno.ENOENT
        raise OSError(missing, os.strerror(missing))
    return program


def _end(descriptor: int, child: subprocess.Popen[bytes]) -> None:
    """Hang up, ask the child's group to end, and make sure that it did."""
    os.close(descriptor)
    _signal(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    # What the child started in its group gets the same time.
    while _signal(child, NO_SIGNAL) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal(child, signal.SIGKILL)
    child.wait()


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    """Whether the child's group took the signal: there is no group any more when all of it has ended."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group that only waits to be reaped
        return False
    return True
