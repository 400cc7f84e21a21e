"""Commands of fastflight, and simulated boards, as processes of their own that start at once.

Python takes half a second to load the command line, Arrow and a server, and a tenth for a board. On Linux, a process
that has loaded them is forked instead (`forked`). The command gets its arguments, environment, folder, standard streams
and signals as from `exec`, and is a child of the test process. What a start loads, and what the interpreter reads from
its environment (`PYTHON...`, `LC_...`), must be tested with `subprocess`.

    with Command([*FASTFLIGHT, "serve"], stdout=PIPE) as child: ...             # as `subprocess.Popen`
    done = run_command([*FASTFLIGHT, "ls", "demo"], capture_output=True)        # as `subprocess.run`

Other programs are started as `subprocess` does.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fastflight.transport import sim
from fastflight_benchmark import simulated
from tests.support import leaks

MODULE = (sys.executable, "-m")
FASTFLIGHT = (*MODULE, "fastflight")
BOARD = (sys.executable, "-P", "-S", "-c", sim.START, sim.PACKAGES)
FORK_COMMANDS = (sys.executable, "-c", "from tests.support.forked import serve_commands; serve_commands()")
FORK_BOARDS = (
    *(sys.executable, "-P", "-S", "-c"),
    "import sys; sys.path.append(sys.argv.pop(1)); from tests.support.forked import serve_boards; serve_boards()",
    sim.PACKAGES,
)
# The process that is forked for programs that begin so: modules of these packages, and boards.
FORKED = {MODULE: FORK_COMMANDS, BOARD: FORK_BOARDS}
PACKAGES = ("fastflight", "fastflight_benchmark", "tests")
# The first terminal that the leader of a session opens is its own: then Ctrl-C, as a key, is a signal.
ON_TERMINAL = 'exec <"$0" >"$0" 2>"$0"; exec "$@"'
_PR_SET_CHILD_SUBREAPER = 36
# Of all processes that are forked: who adopts orphans adopts all of them.
_lock = threading.Lock()


class Command(subprocess.Popen[Any]):
    """A process as `subprocess.Popen` starts it, or forked if it is a module of ours or a simulated board.

    With `start_new_session`, a terminal that is its standard input becomes its controlling terminal.
    """

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        words = tuple(args)
        program = next((each for each in FORKED if words[: len(each)] == each), None)
        other = program == MODULE and words[2].partition(".")[0] not in PACKAGES
        if sys.platform != "linux" or program is None or other:
            if more[20] and more[9] != -1 and os.isatty(more[9]):
                args = ["/bin/sh", "-c", ON_TERMINAL, os.ttyname(more[9]), *words]
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        folder, environment, handles, new_session = more[4], more[5], more[9:15], more[20]
        order = {
            "words": words[len(program) :],
            "environment": dict(os.environ if environment is None else environment),
            "folder": os.fspath(folder or os.getcwd()),
            "session": new_session,
        }
        streams = handles[0], handles[3], handles[5]
        self.pid = forks(program).fork(order, [number if fd == -1 else fd for number, fd in enumerate(streams)])
        self._child_created = True
        self._close_pipe_fds(*handles)  # type: ignore[attr-defined]


def run_command(
    words: Sequence[str], *, input: Any = None, timeout: float | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command as `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Command(words, **options) as child:
        try:
            out, err = child.communicate(input, timeout)
        except BaseException:
            child.kill()
            raise
    done = subprocess.CompletedProcess(words, child.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Forks:
    """A process that is forked, as its parent sees it. It starts with the first program, and ends with this process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._line, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._command = [*command, str(self._theirs.fileno())]
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, order: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Start a program with these standard streams. Return its process id."""
        with _lock:
            if self._process is None:
                # A process with threads cannot be forked.
                environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, pass_fds=[self._theirs.fileno()], env=environment
                )
                leaks.helpers.add(self._process.pid)
                self._theirs.close()
            # The parent of the program ends, and then its next ancestor that adopts orphans becomes its parent.
            _adopt(True)
            try:
                socket.send_fds(self._line, [json.dumps(order).encode("utf-8", "surrogateescape")], streams)
                pid, ended = self._line.recv(64), self._line.recv(64)
            finally:
                _adopt(False)
            assert pid and ended, "the process that is forked has ended"
            return int(pid)

    def close(self) -> None:
        """End the process. What it was forked for goes on."""
        for end in (self._line, self._theirs):
            end.close()
        if self._process is not None:
            self._process.wait()


@functools.cache
def forks(program: tuple[str, ...]) -> Forks:
    return Forks(FORKED[program])


@contextmanager
def forked_boards() -> Iterator[None]:
    """Until the block ends, servers of this process fork their simulated boards, on Linux."""
    if sys.platform != "linux":
        yield
        return
    opened = [forks(program) for program in FORKED]
    with forking(sim, simulated):
        yield
    for each in opened:
        each.close()


@contextmanager
def forking(*modules: ModuleType) -> Iterator[None]:
    """Until the block ends, what these modules start with `subprocess` are `Command`s."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Command}))
        yield


def _adopt(orphans: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)
