"""The log of long-running commands (`serve`, `bridge`), on stderr.

A program that takes stderr through a pipe must keep reading it: when the pipe is full, the thread that logs blocks, and
with it devices and their clients. There are few lines, two per client, so a slow reader blocks nothing. Lines are not
dropped when the pipe is full: they would be missing without a sign when they matter most. If stderr cannot be written,
because its reader has gone or the disk is full, lines are lost and the command goes on.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable
from typing import Annotated, Any, TextIO, cast

import structlog
import typer
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, ExcInfo, Processor

from fastflight.cli import screen
from fastflight.cli.options import LOGGING
from fastflight.extras import conflicting_package
from fastflight.runtime.tracing import with_ids
from fastflight.simulator import sandbox
from fastflight.transport.url import scheme_of

log = structlog.get_logger(__name__)

JsonLog = Annotated[bool, typer.Option("--log-json", help="Write the log as JSON lines.", rich_help_panel=LOGGING)]
DebugLog = Annotated[
    bool,
    typer.Option(
        "--log-debug",
        help="Log details too, such as how long the relay's reads and sends take.",
        rich_help_panel=LOGGING,
    ),
]


def log_to_stderr(*, as_json: bool, debug: bool = False, least: int = logging.INFO) -> None:
    """Send structlog's output to stderr: JSON lines with `as_json`, else text.

    `least` is the lowest level that is written; `debug` sets it to the debug level.
    """
    # Tracebacks without local variables, which structlog adds by default: request headers are among them.
    traced = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    for_people: list[Processor] = [
        _printable_values,
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_printable_traceback),
    ]
    for_machines: list[Processor] = [traced, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            with_ids,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *(for_machines if as_json else for_people),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else least),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _BestEffortStream(sys.stderr))),
    )


def _printable_values(_: Any, __: str, event: EventDict) -> EventDict:
    """Escape control characters: some values are text from boards and clients."""
    return {key: screen.printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _printable_traceback(out: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(screen.printable_lines(text.getvalue()))


def warn_of_unconfined_boards(urls: Iterable[str]) -> None:
    """Log a warning if a device is a simulated board and this system cannot confine the code that runs on it."""
    reason = sandbox.missing()
    if reason and any(scheme_of(url) == "sim:" for url in urls):
        log.warning("code on a simulated board has the rights of this user", reason=reason, see="docs/SECURITY.md")


def warn_of_conflicting_package() -> None:
    """Log a warning if PyPI's other package `fastflight` is installed here."""
    if (conflict := conflicting_package()) is not None:
        what, advice = conflict
        log.warning(what, hint=advice)


class _BestEffortStream:
    """Writes to `stream` and ignores errors, so that a lost log ends no thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with screen.best_effort(self._stream):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with screen.best_effort(self._stream):
            self._stream.flush()
