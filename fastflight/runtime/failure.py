"""Describes errors to clients, in the same way for every edge and without any detail of the host.

An error that is not in `fastflight.errors` becomes "internal error" with the request's id. Its traceback goes to the
log under that id and never to the client.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import structlog

from fastflight.errors import FastFlightError
from fastflight.runtime import tracing
from fastflight.runtime.tracing import Trace

log = structlog.get_logger(__name__)


def error_json(error: FastFlightError, max_bytes: int) -> bytes:
    """Return the error as JSON: `code`, `what`, `where`, `hint` and its own attributes, without those that are empty.

    While the JSON is longer than `max_bytes`, the beginning of its longest text is cut off.
    """
    content: dict[str, Any] = {"code": error.code, **{k: v for k, v in vars(error).items() if v != ""}}
    while len(data := json.dumps(content, default=str).encode()) > max_bytes:
        longest = max(content, key=lambda key: len(str(content[key])))
        content[longest] = "..." + str(content[longest])[len(str(content[longest])) // 2 + 3 :]
    return data


def log_unexpected(error: BaseException, trace: Trace | None = None) -> str:
    """Log an unexpected error with its traceback. Return the text for the client.

    `trace` is the request's trace, if that is not the current one.
    """
    trace = trace or tracing.current() or tracing.new_trace()
    # If the log cannot be written (its terminal is gone), the client must still get this error.
    with contextlib.suppress(Exception):
        log.error("request failed", **trace.fields(), exc_info=(type(error), error, error.__traceback__))
    return f"internal error, see the server's log, request id {trace.request_id}"
