"""How a command ends: its exit code, and one line on stderr that says what went wrong.

====  ==========================================================================
code  means
====  ==========================================================================
0     done
1     the server or the device refused or failed, a local file could not be
      read or written, or the reader of stdout has gone (no message then)
2     the command line is wrong
3     the server or the device cannot be reached
130   interrupted (Ctrl-C, SIGTERM)
====  ==========================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer

from fastflight.cli import screen
from fastflight.errors import DeviceException, FastFlightError, IncompleteWarning, RequestError, TransportError

P = ParamSpec("P")

REFUSED = 1
UNREACHABLE = 3
INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C or SIGTERM ended a command. The text says what the command leaves; empty if it leaves nothing."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a `RequestError` as a wrong command line, with exit code 2. For checks before a server is called."""
    try:
        yield
    except RequestError as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def report_errors() -> Iterator[None]:
    """Print an error of the block as one line on stderr, and end the command with its exit code.

    Handles `FastFlightError`, `OSError` and interrupts; other exceptions pass. Code that raised on a board prints the
    board's whole traceback. An `IncompleteWarning` becomes a line on stderr too.
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
        # Hints name the request's keys; on the command line the key is an option.
        screen.complain(f"error: {error}".replace("interrupt=true", "--interrupt"))
        raise typer.Exit(REFUSED) from error
    except BrokenPipeError:
        raise  # `tail | head`: typer ends the command without a message
    except OSError as error:
        screen.complain(f"error: {error.filename or 'this computer'}: {error.strerror or error}")
        raise typer.Exit(REFUSED) from error
    except (KeyboardInterrupt, asyncio.CancelledError, Interrupted) as error:
        rest = str(error) if isinstance(error, Interrupted) else ""
        screen.complain(f"interrupted: {rest}" if rest else "interrupted")
        raise typer.Exit(INTERRUPTED) from error


def asynchronous(command: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a command of a coroutine function. Ctrl-C and SIGTERM cancel it, and so its open streams.

    An interrupted command does not wait for server calls that have no answer yet: they end with the process.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        offload = ThreadPoolExecutor(thread_name_prefix="offload")
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(offload)
            try:
                with report_errors():
                    runner.run(_until_terminated(command(*args, **kwargs)))
            except typer.Exit as ended:
                if ended.exit_code == INTERRUPTED:
                    offload.shutdown(wait=False, cancel_futures=True)
                    from fastflight.app.process import abandon  # not at the top: it loads the log of servers

                    abandon(INTERRUPTED)
                raise

    return run


async def _until_terminated(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    # Windows has no signal handlers on event loops, and elsewhere only the main thread may set one.
    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await command
