"""A line in the log for each request, at its end.

They are at debug: a server answers thousands in a second, and to write a line takes as long as a small answer. At info
are those that failed by no fault of the client: of a board, a line, a disk, or ours. Where nobody has set a log up,
there are none: structlog would print them among what an embedding program prints.
"""

from __future__ import annotations

import contextlib
import logging

import structlog

from fastflight.errors import (
    AccessError,
    BusyError,
    DataError,
    DeviceException,
    FastFlightError,
    FileMissing,
    RequestError,
    Stopped,
)
from fastflight.runtime.tracing import Trace

# What a client is told of what it did itself, or may ask again: it knows, and whoever runs the server need not.
OF_THE_CLIENT = (RequestError, AccessError, BusyError, DataError, Stopped, FileMissing, DeviceException)


def code_of(error: BaseException) -> str:
    """The code under which an error is told and counted."""
    return error.code if isinstance(error, FastFlightError) else FastFlightError.code


class RequestLog:
    """Make it when the log is set up: what it writes to is found once."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(__name__).bind()
        # Of a log that nobody has set up each line would stand among what the program prints.
        self._heard = structlog.is_configured()
        # Whether those that ended well are told of.
        self.in_detail = self._heard and bool(self._log.is_enabled_for(logging.DEBUG))

    def ended(
        self,
        request: str,
        *,
        trace: Trace | None,
        device: str | None,
        identity: str,
        outcome: str,
        seconds: float,
        rows: int = 0,
        size: int = 0,
        error: BaseException | None = None,
    ) -> None:
        """`request` is its type, or what was called."""
        ours = self._heard and error is not None and not isinstance(error, OF_THE_CLIENT)
        if not (ours or self.in_detail):
            return
        tell = self._log.info if ours else self._log.debug
        fault = {} if error is None else {"code": code_of(error), "error": _brief(error)}
        # A log that cannot be written (its terminal is gone) must not be what becomes of a request.
        with contextlib.suppress(Exception):
            tell(
                "request ended",
                request=request,
                device=device,
                identity=identity,
                outcome=outcome,
                rows=rows,
                bytes=size,
                seconds=round(seconds, 6),
                **fault,
                **({} if trace is None else trace.fields()),
            )


# Of an error's text: a board's traceback may follow.
MAX_ERROR_CHARACTERS = 200


def _brief(error: BaseException) -> str:
    if isinstance(error, FastFlightError):
        return str(error)[:MAX_ERROR_CHARACTERS]
    return type(error).__name__  # all of it is in the line of its own that it has
