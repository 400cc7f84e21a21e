"""The log of the commands that run until told to stop, on stderr.

Whoever takes it through a pipe must go on reading: a full pipe holds up what logs, and so devices and their clients.
Lines are few, two for each client, so a reader that is merely slow holds nothing up. To lose lines instead would be to
lose them without a sign, when they matter most. One that has gone loses them: what logs goes on.
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
from fastflight.runtime.tracing import with_ids
from fastflight.simulator import sandbox
from fastflight.transport.url import scheme_of

log = structlog.get_logger(__name__)

AsJsonLines = Annotated[bool, typer.Option("--log-json", help="Write the log as JSON lines.", rich_help_panel=LOGGING)]
InDetail = Annotated[
    bool,
    typer.Option(
        "--log-debug",
        help="Log in detail, too: how long the relay's reads and sends take.",
        rich_help_panel=LOGGING,
    ),
]


def log_to_stderr(*, as_json: bool, debug: bool = False) -> None:
    """For people, or as JSON lines for machines; with what is at debug level or without."""
    # Neither with the variables of each frame, which structlog would add: the headers of requests are among these.
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
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Heard(sys.stderr))),
    )


def _printable_values(_: Any, __: str, event: EventDict) -> EventDict:
    """Escape what a terminal would obey: what boards and clients said is among the values."""
    return {key: screen.printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _printable_traceback(out: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(screen.printable_lines(text.getvalue()))


def warn_of_open_boards(urls: Iterable[str]) -> None:
    """Log whether code on the simulated boards among these devices has the rights of this process's user."""
    reason = sandbox.missing()
    if reason and any(scheme_of(url) == "sim:" for url in urls):
        log.warning("code on a simulated board has the rights of this user", reason=reason, see="docs/SECURITY.md")


class _Heard(io.TextIOBase):
    """`stream`, while somebody reads it: to log is the end of no thread that has more to do."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with screen.unread_or_not(self._stream):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with screen.unread_or_not(self._stream):
            self._stream.flush()
