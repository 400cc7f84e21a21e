"""The process that is forked for each command or simulated board of a test: see `tests.support.commands`.

It has loaded what these need. Its parent sends orders over a socket: the words of a command, its environment, its
folder, and descriptors for its standard streams. Only the standard library is imported at the top, since a simulated
board has no other packages.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# What a server, or a command on a board, loads.
COMMANDS = (
    "pyarrow.flight",
    "typer.rich_utils",
    "fastflight.app.local_board",
    "fastflight.app.compose",
    "fastflight.gateway",
)
MOST_BYTES = 1 << 17


def serve_commands() -> None:
    """Become `python -m` with the words of each order: a module, and its arguments."""
    importlib.import_module("fastflight.cli.entry").choose_pool(os.environ, sys.platform)
    for module in COMMANDS:
        importlib.import_module(module)
    commands = importlib.import_module("fastflight.cli.main")
    for name in commands.COMMANDS:
        commands.load(name)
    become(lambda: runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True))


def serve_boards() -> None:
    """Become a simulated board for each order."""
    become(importlib.import_module("fastflight.simulator.__main__").main)


def become(program: Callable[[], object]) -> None:
    """Fork for each order, and run `program` in the child. The last argument is the descriptor of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    gc.collect()
    gc.freeze()
    order = _next_order(socket.socket(fileno=int(sys.argv.pop())))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order["session"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv[1:] = order["words"]
    try:
        program()
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    # As Python ends, but for the modules: to clear them takes longer than most commands, and copies their memory.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _next_order(line: socket.socket) -> Mapping[str, Any]:
    """Fork for each order until the parent has ended. Return only in the children."""
    while True:
        data, fds, _, _ = socket.recv_fds(line, MOST_BYTES, 3)
        if not data:
            os._exit(0)
        if (between := os.fork()) == 0:
            parent = os.getpid()
            if (pid := os.fork()) == 0:
                while os.getppid() == parent:  # a board ends when its parent changes
                    time.sleep(0.001)
                _own_streams(fds)
                order: dict[str, Any] = json.loads(data.decode("utf-8", "surrogateescape"))
                return order
            line.send(b"%d" % pid)
            os._exit(0)
        os.waitpid(between, 0)
        line.send(b"ended")
        for fd in fds:
            os.close(fd)


def _own_streams(fds: Sequence[int]) -> None:
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
    os.closerange(3, 256)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
