"""Lets Ctrl-C and SIGTERM end a command, also while it waits for the server.

Python handles a signal in the main thread, and only between two steps of Python code. Flight's calls block in C++, some
for as long as a device is busy: `fastflight.cli.interruptible_client` runs each of them in a thread, and the main
thread waits for it. A signal raises `KeyboardInterrupt` there: the command leaves its `with` blocks, which cancels open
streams, aborts writes and removes temporary files. A second signal ends the process at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec

import typer

from fastflight.cli import screen
from fastflight.cli.exit_codes import INTERRUPTED, report_errors

P = ParamSpec("P")

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long an interrupted command may clean up: the server stores the batch that is on the line and settles the file, or
# a recording on this computer is completed.
CLEAN_UP_SECONDS = 30.0
# Some systems do not wake a waiting main thread for a signal: it looks this often whether there was one.
LOOK_SECONDS = 0.2
SHOW_CURSOR = "\x1b[?25h"


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """Report the errors of a command, and raise `KeyboardInterrupt` in it at Ctrl-C and SIGTERM.

    An interrupted command ends the process without further clean-up at a second signal, and after `CLEAN_UP_SECONDS`.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with report_errors(), _signals_interrupt():
                command(*args, **kwargs)
        except typer.Exit as ended:
            if ended.exit_code == INTERRUPTED:
                from fastflight.app.process import abandon  # not at the top: it loads the log of servers

                abandon(INTERRUPTED)
            raise

    return run


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            _end()
        interrupted = True
        limit = threading.Timer(CLEAN_UP_SECONDS, _end)
        limit.daemon = True
        limit.start()
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        if not interrupted:  # otherwise the process is about to end
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _end() -> None:
    """End the process, with what is printed so far, and with a cursor: a progress bar hides it."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        sys.stdout.flush()
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
    screen.complain("interrupted")
    os._exit(INTERRUPTED)
