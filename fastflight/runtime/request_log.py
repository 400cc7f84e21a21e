"""Writes a line to the log when a request ends.

The level is debug, because a server answers thousands of requests in a second, and writing a line takes as long as a
small answer. Requests that failed through no fault of the client (but of a board, a line, a disk or the server) are
logged at info. Nothing is written unless structlog is configured: by default it would print the lines among the output
of an embedding program.
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

# Errors that the client caused, or that it can solve by asking again. The operator of the server need not see them.
OF_THE_CLIENT = (RequestError, AccessError, BusyError, DataError, Stopped, FileMissing, DeviceException)


def code_of(error: BaseException) -> str:
    """Return the code under which an error is logged and counted."""
    return error.code if isinstance(error, FastFlightError) else FastFlightError.code


class RequestLog:
    """Logs the end of each request: call `ended`. Create it after structlog is configured: it checks that only once."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(__name__).bind()
        # Without a configuration, structlog would print the lines among the output of the program.
        self._configured = structlog.is_configured()
        # Whether all requests are logged, not only failed ones.
        self.in_detail = self._configured and bool(self._log.is_enabled_for(logging.DEBUG))

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
        """Log the end of a request. `request` is its type, or the name of the call; `size` is in bytes."""
        ours = self._configured and error is not None and not isinstance(error, OF_THE_CLIENT)
        if not (ours or self.in_detail):
            return
        write = self._log.info if ours else self._log.debug
        fault = {} if error is None else {"code": code_of(error), "error": _brief(error)}
        # A log that cannot be written (its terminal is gone) must not make the request fail.
        with contextlib.suppress(Exception):
            write(
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


# How much of an error's text is logged: it may contain a board's traceback.
MAX_ERROR_CHARACTERS = 200


def _brief(error: BaseException) -> str:
    if isinstance(error, FastFlightError):
        return str(error)[:MAX_ERROR_CHARACTERS]
    return type(error).__name__  # `log_unexpected` has logged the rest
