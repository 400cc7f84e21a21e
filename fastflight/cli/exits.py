"""How a command ends: its exit code, and one line that says what was wrong.

====  ==========================================================================
code  means
====  ==========================================================================
0     done
1     the server or the device said no, a local file could not be written, or
      nobody reads what is printed any more (nothing is said of that)
2     the command line is wrong
3     the server, or the line to the device, cannot be reached
130   interrupted (Ctrl-C, SIGTERM)
====  ==========================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer
from typer.core import TyperGroup

from fastflight.app.process import abandon
from fastflight.cli import screen
from fastflight.errors import DeviceException, FastFlightError, IncompleteWarning, RequestError, TransportError

P = ParamSpec("P")

REFUSED = 1
UNREACHABLE = 3
INTERRUPTED = 130
# The base of all complaints of the command line's parser; it has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Interrupted(Exception):
    """The user, or SIGTERM, ended a command. Its text says what stays of what it did; empty where nothing does."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a `RequestError` as a wrong command line: for what is refused before a server is asked."""
    try:
        yield
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error


class Commands(TyperGroup):
    """All commands: what the parser complains of is printable, and output that cannot be written ends each with 1."""

    def main(self, *args: Any, **options: Any) -> Any:
        try:
            return super().main(*args, **options)
        except OSError as error:
            screen.give_up(sys.stdout)
            screen.complain(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
            raise SystemExit(REFUSED) from error

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _printable_usage():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _printable_usage():
            return super().invoke(ctx)


@contextmanager
def _printable_usage() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        error.message = screen.printable_lines(error.message)  # type: ignore[attr-defined]
        raise


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn errors into a line on stderr and an exit code. Errors that are not ours stay what they are.

    Warnings of an incomplete answer become a line as well.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", IncompleteWarning)
            warnings.showwarning = lambda message, *_: screen.complain(f"warning: {message}")
            yield
    except DeviceException as error:
        screen.complain(error.traceback.rstrip() or str(error))
        raise typer.Exit(REFUSED) from error
    except TransportError as error:
        screen.complain(f"error: {error}")
        raise typer.Exit(UNREACHABLE) from error
    except FastFlightError as error:
        # Hints speak of the request's keys; here the key is an option.
        screen.complain(f"error: {error}".replace("interrupt=true", "--interrupt"))
        raise typer.Exit(REFUSED) from error
    except BrokenPipeError:
        raise  # `tail | head`: typer ends quietly
    except OSError as error:
        screen.complain(f"error: {error.filename or 'this computer'}: {error.strerror or error}")
        raise typer.Exit(REFUSED) from error
    except (KeyboardInterrupt, asyncio.CancelledError, Interrupted) as error:
        stays = str(error) if isinstance(error, Interrupted) else ""
        screen.complain(f"interrupted: {stays}" if stays else "interrupted")
        raise typer.Exit(INTERRUPTED) from error


def asynchronous(command: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A coroutine function as a command: Ctrl-C and SIGTERM cancel it, and with it whatever it reads or writes.

    What it asks a server for and has no answer to yet ends with the process: it is not waited for.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        offload = ThreadPoolExecutor(thread_name_prefix="offload")
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(offload)
            try:
                with told_in_one_line():
                    runner.run(_until_terminated(command(*args, **kwargs)))
            except typer.Exit as ended:
                if ended.exit_code == INTERRUPTED:
                    offload.shutdown(wait=False, cancel_futures=True)
                    abandon(INTERRUPTED)
                raise

    return run


async def _until_terminated(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    # Windows has no such handlers, and only the main thread may have any.
    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await command
