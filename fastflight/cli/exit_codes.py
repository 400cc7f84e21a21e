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

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fastflight.cli import screen
from fastflight.errors import DeviceException, FastFlightError, IncompleteWarning, RequestError, TransportError

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
    except (KeyboardInterrupt, Interrupted) as error:
        rest = str(error) if isinstance(error, Interrupted) else ""
        screen.complain(f"interrupted: {rest}" if rest else "interrupted")
        raise typer.Exit(INTERRUPTED) from error
