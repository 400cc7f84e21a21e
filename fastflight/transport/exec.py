"""`exec:COMMAND`: a child process on a pseudo-terminal, such as MicroPython's unix port or an emulator.

The terminal is set raw before the child starts: a child that finds it cooked would inherit echo and line editing while
it runs code. The child gets a folder of its own to run in (`?cwd=DIR` names one); it runs with the rights of this
process, so a MicroPython that is given here sees the host's files.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportError
from fastflight.transport.descriptor import DescriptorPort
from fastflight.transport.inherited import inherited

# A child that was asked to end gets this long before it is killed.
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.01
# Asks whether there is anybody to signal.
NO_SIGNAL = 0


@dataclass(slots=True)
class ExecAddress:
    """A command to run. Without `cwd` it runs in a temporary folder that lives as long as the address."""

    url: str
    command: str
    cwd: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    def open(self, timeout: float) -> ExecPort:
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
            child = subprocess.Popen(  # noqa: S603  # the command that the fleet file names, no shell
                shlex.split(self.command),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=folder,
                env=inherited(),
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
    """The terminal of a child. `process` is for whoever wants to know how it ended; closing the port ends it."""

    def __init__(self, descriptor: int, where: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(descriptor, where, lambda: _end(descriptor, process))
        self.process = process

    async def aclose(self) -> None:
        # A child may take its time to end.
        await unbroken(off_loop(self.close))


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
