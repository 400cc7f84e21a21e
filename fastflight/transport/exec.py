"""`exec:COMMAND`: a child process on a pseudo-terminal, such as MicroPython's unix port or an emulator.

The terminal is set to raw mode before the child starts. Otherwise a child that restores the mode that it found would
have echo and line editing while it runs code. It is the child's controlling terminal. The child runs in a temporary
folder, or in `?cwd=DIR`. It has the rights of this process, so a MicroPython child sees the host's files.

`ExecAddress.aopen` returns a `ChildPort`, which survives a soft reset of the child (`child`).
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from fastflight.concurrency import off_loop
from fastflight.concurrency.offload import unbroken
from fastflight.errors import TransportError
from fastflight.transport import url_parts
from fastflight.transport.child import ChildPort
from fastflight.transport.terminal import Terminal, mark

OPTIONS = ("cwd",)
# The shell leads a new session without a terminal, so the first terminal that it opens becomes the controlling one.
# Then the shell replaces itself by the command. This is the only way in Python that runs no Python code between fork
# and exec, where other threads may hold locks.
SHELL = "/bin/sh"
ON_TERMINAL = 'exec <"$0" >"$0" 2>"$0"; exec "$@"'
# The token with which commands authenticate to servers. A child may print its environment.
SECRETS = frozenset(("FASTFLIGHT_TOKEN",))


@dataclass(slots=True)
class ExecAddress:
    """A command to run. Without `cwd` it runs in a temporary folder, which exists until `dispose`."""

    url: str
    command: str
    cwd: str | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    async def aopen(self, timeout: float) -> ChildPort:
        terminal = await off_loop(self._start, discard=Terminal.end)
        try:
            return ChildPort(terminal, self._start, self.url)
        except BaseException:
            await unbroken(off_loop(terminal.end))
            raise

    def _start(self) -> Terminal:
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
            mark(theirs)
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
        return Terminal(ours, child)

    def _terminal_error(self, error: OSError) -> TransportError:
        missing = os.strerror(error.errno) if error.errno else str(error)
        return TransportError(
            f"no terminal for the command ({missing})", where=self.url, hint="Try again when fewer are open"
        )

    def dispose(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def child_environment() -> dict[str, str]:
    """Return the environment of this process, without its secrets."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _check_runnable(program: str, folder: str) -> str:
    """Return `program`, to be run in `folder`. `OSError` if it cannot run: the shell would complain on the terminal."""
    path = os.path.join(folder, program) if os.sep in program else program
    if shutil.which(path) is None:
        missing = errno.EACCES if os.path.exists(path) else errno.ENOENT
        raise OSError(missing, os.strerror(missing))
    return program


def parse(url: str, rest: str) -> ExecAddress:
    """Return the address for a URL of this kind; `rest` follows the scheme. `RequestError` if it is wrong."""
    # A command may hold a question mark of its own: only a known option ends it.
    command, mark, query = rest.rpartition("?")
    if not mark or not query.startswith(tuple(f"{name}=" for name in OPTIONS)):
        command, query = rest, ""
    if not command.strip():
        raise url_parts.bad(url, "the command is missing")
    return ExecAddress(url, command, dict(parse_qsl(query)).get("cwd"))
