"""What a client is told of an error, whichever edge it asked: the same fields, and nothing of the host.

An error that is not one of ours is "internal error" with the request's id: the traceback goes to the log under that id,
and never to the peer.
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


def described(error: FastFlightError, max_bytes: int) -> bytes:
    """The error as JSON: `code`, `what`, `where`, `hint` and its own attributes; those that are empty are left out.

    Of one longer than `max_bytes`, the longest texts lose their beginnings.
    """
    content: dict[str, Any] = {"code": error.code, **{k: v for k, v in vars(error).items() if v != ""}}
    while len(data := json.dumps(content, default=str).encode()) > max_bytes:
        longest = max(content, key=lambda key: len(str(content[key])))
        content[longest] = "..." + str(content[longest])[len(str(content[longest])) // 2 + 3 :]
    return data


def numbered(error: BaseException, trace: Trace | None = None) -> str:
    """Log an error that nobody expected; the text that the peer is told instead.

    `trace` is that of the request, where it is not the current one.
    """
    trace = trace or tracing.current() or tracing.made()
    # A log that cannot be written (its terminal is gone) must not be what the peer is told.
    with contextlib.suppress(Exception):
        log.error("request failed", **trace.fields(), exc_info=(type(error), error, error.__traceback__))
    return f"internal error, see the server's log, request id {trace.request_id}"
