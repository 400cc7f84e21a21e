"""`exec:COMMAND`: a child process on a pseudo-terminal, such as MicroPython's unix port or an emulator.

The terminal is set to raw mode before the child starts. Otherwise a child that restores the mode that it found would
have echo and line editing while it runs code. It is the child's controlling terminal. The child runs in a temporary
folder, or in `?cwd=DIR`. It has the rights of this process, so a MicroPython child sees the host's files.

`ExecAddress.open` returns a `ChildPort`, which survives a soft reset of the child (`child`).
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
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportError
from fastflight.transport import url_parts
from fastflight.transport.child import ChildPort
from fastflight.transport.opening import LoopAddress

OPTIONS = ("cwd",)
# A child that was asked to exit gets this long before it is killed.
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.01
# Signal 0 only checks that the process group exists.
NO_SIGNAL = 0
CTRL_C = b"\x03"
# The index in the result of `termios.tcgetattr`.
LOCAL_FLAGS = 3
# The shell leads a new session without a terminal, so the first terminal that it opens becomes the controlling one.
# Then the shell replaces itself by the command. This is the only way in Python that runs no Python code between fork
# and exec, where other threads may hold locks.
SHELL = "/bin/sh"
ON_TERMINAL = 'exec <"$0" >"$0" 2>"$0"; exec "$@"'
# The token with which commands authenticate to servers. A child may print its environment.
SECRETS = frozenset(("FASTFLIGHT_TOKEN",))


@dataclass(slots=True)
class ExecAddress(LoopAddress):
    """A command to run. Without `cwd` it runs in a temporary folder, which exists until `dispose`."""

    url: str
    command: str
    cwd: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    async def aopen(self, timeout: float) -> ChildPort:
        terminal = await off_loop(self._start, discard=ExecTerminal.end)
        try:
            return ChildPort(terminal, self._start, self.url)
        except BaseException:
            await unbroken(off_loop(terminal.end))
            raise

    def _start(self) -> ExecTerminal:
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
            raise self._terminal_error(error) from error
        folder = self.cwd or (self._folder.name if self._folder else ".")
        try:
            tty.setraw(theirs)
            _mark(theirs)
            program, *arguments = shlex.split(self.command)
            child = subprocess.Popen(  # noqa: S603  # the command that the fleet file names; the shell reads none of it
                [SHELL, "-c", ON_TERMINAL, os.ttyname(theirs), _check_runnable(program, folder), *arguments],
                # Keeps the terminal open until the shell has opened it: a terminal that nobody has open hangs up.
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
        return ExecTerminal(ours, child)

    def _terminal_error(self, error: OSError) -> TransportError:
        missing = os.strerror(error.errno) if error.errno else str(error)
        return TransportError(
            f"no terminal for the command ({missing})", where=self.url, hint="Try again when fewer are open"
        )

    def dispose(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class ExecTerminal:
    """The terminal of the child `process`.

    A child that leaves the terminal as it is, such as an emulator, gets Ctrl-C as a byte. MicroPython's unix port
    changes the mode of the terminal: it reads Ctrl-C as a byte at its prompts, and catches SIGINT instead while it runs
    code. While such a child catches SIGINT, it gets the signal instead of the byte.
    """

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.descriptor = descriptor
        self.process = process
        self._manages_terminal = False
        self._ending = threading.Lock()
        self._closed = False

    def interrupting(self, data: bytes) -> bytes:
        """Send SIGINT for a Ctrl-C in `data` if the child catches it. Return the bytes to write to the terminal."""
        if self._manages_terminal and CTRL_C not in data:
            return data
        marked = _is_marked(self.descriptor)
        self._manages_terminal = self._manages_terminal or not marked
        if (
            CTRL_C not in data
            or not self._manages_terminal
            or not _catches_interrupts(self.process.pid, default=marked)
        ):
            return data
        self.process.send_signal(signal.SIGINT)
        return data.replace(CTRL_C, b"")

    def end(self, patience: float = 0.0) -> int:
        """Hang up, ask the child's process group to exit, and kill what is left of it. Return the exit code.

        The child first has `patience` seconds to exit by itself.
        """
        with self._ending:
            if not self._closed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience)
                self._closed = True
                _end(self.descriptor, self.process)
        return self.process.wait()


def child_environment() -> dict[str, str]:
    """Return the environment of this process, without its secrets."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _mark(terminal: int) -> None:
    """Set a flag of the raw `terminal` that has no effect there. A child that sets its own mode clears the flag."""
    import termios

    attributes = termios.tcgetattr(terminal)
    attributes[LOCAL_FLAGS] |= termios.ECHOE
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _is_marked(terminal: int) -> bool:
    """Return whether the terminal still has the flag of `_mark`: then the child has not changed its mode.

    `terminal` is a descriptor of either side.
    """
    import termios

    try:
        return bool(termios.tcgetattr(terminal)[LOCAL_FLAGS] & termios.ECHOE)
    except termios.error:  # the terminal has hung up
        return True


def _catches_interrupts(process: int, *, default: bool) -> bool:
    """Return whether the process catches SIGINT, or `default` if the system does not tell."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return default
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def _check_runnable(program: str, folder: str) -> str:
    """Return `program`, to be run in `folder`. `OSError` if it cannot run: the shell would complain on the terminal."""
    path = os.path.join(folder, program) if os.sep in program else program
    if shutil.which(path) is None:
        missing = errno.EACCES if os.path.exists(path) else errno.ENOENT
        raise OSError(missing, os.strerror(missing))
    return program


def _end(descriptor: int, child: subprocess.Popen[bytes]) -> None:
    """Hang up, ask the child's process group to exit, and kill what is left of it."""
    os.close(descriptor)
    _signal(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    # The other processes of the group get the same time.
    while _signal(child, NO_SIGNAL) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    _signal(child, signal.SIGKILL)
    child.wait()


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the child's process group. Return false if all its processes have exited."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group that only waits to be reaped
        return False
    return True


def parse(url: str, rest: str) -> ExecAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    # A command may hold a question mark of its own: only a known option ends it.
    command, mark, query = rest.rpartition("?")
    if not mark or not query.startswith(tuple(f"{name}=" for name in OPTIONS)):
        command, query = rest, ""
    if not command.strip():
        raise url_parts.bad(url, "the command is missing")
    return ExecAddress(url, command, dict(parse_qsl(query)).get("cwd"))
