"""Turns errors into HTTP answers: one table from the typed errors to status codes.

The body is the JSON that Flight carries in `extra_info`: `code`, `what`, `where`, `hint` and the error's own
attributes. `text` has all of it in one line, as the command line prints it. No traceback and no path of the host
reaches a client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from fastflight.concurrency import failure_of, off_loop
from fastflight.errors import (
    BusyError,
    DataError,
    DeviceError,
    DeviceFull,
    FastFlightError,
    FileMissing,
    Forbidden,
    ProtocolError,
    RequestError,
    ResourceExhausted,
    SourceError,
    Stopped,
    StorageError,
    StorageFull,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
    VersionConflict,
)
from fastflight.gateway.asgi import SENDER, Application, Header, Receive, Scope, Send
from fastflight.runtime.failure import error_json, log_unexpected

# A board's traceback is 2,000 characters at most; JSON may write each as six bytes, and an error holds it twice.
MAX_ERROR_BYTES = 32 * 1024
# `Retry-After` of errors that do not say when to come back.
RETRY_SECONDS = 1
# Headers of every answer: browsers must not guess the content type, nor tell other sites which page led to them.
EVERYWHERE = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class HttpRefusal(RequestError):
    """A refused request with an HTTP status code of its own, and the headers that the status requires."""

    def __init__(
        self, status: int, what: str, *, where: str = "", hint: str = "", headers: Iterable[Header] = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status
        self.headers = tuple(headers)


# The first class that fits counts, so subclasses come first.
STATUS: tuple[tuple[type[FastFlightError], int], ...] = (
    (UnknownName, 404),
    (FileMissing, 404),
    (VersionConflict, 412),
    (RequestError, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (DataError, 422),
    (BusyError, 503),
    (Stopped, 503),
    (TransportTimeout, 504),
    (TransportError, 502),
    (DeviceFull, 507),
    (DeviceError, 502),
    (SourceError, 500),
    (StorageFull, 507),
    (StorageError, 500),
    (ProtocolError, 502),
)
# Error numbers of a board that are the request's fault, so that its client can do something about them.
OF_BOARD = {
    "EACCES": 403,
    "EEXIST": 409,
    "EINVAL": 400,
    "EISDIR": 409,
    "ENAMETOOLONG": 400,
    "ENOTDIR": 409,
    "ENOTEMPTY": 409,
    "EPERM": 403,
    "EROFS": 403,
}


def error_answer(error: BaseException) -> tuple[int, bytes]:
    """Return the status code and the JSON for `error`. An unexpected one is logged; the client gets the request id."""
    error = failure_of(error)
    if isinstance(error, HttpRefusal):
        content = json.loads(error_json(error, MAX_ERROR_BYTES))
        del content["status"], content["headers"]
        return error.status, _body(content, str(error))
    for kind, status in STATUS:
        if isinstance(error, kind):
            status = OF_BOARD.get(getattr(error, "errno", ""), status)
            return status, _body(json.loads(error_json(error, MAX_ERROR_BYTES)), str(error))
    text = log_unexpected(error)
    return 500, _body({"code": FastFlightError.code, "what": text}, text)


class ErrorAnswers:
    """An ASGI application that answers with the errors of another; an answer that has begun is broken off instead."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope[SENDER].started:
                await error_answer_off_loop(error)
            else:
                await send_error(send, error)


async def error_answer_off_loop(error: BaseException) -> tuple[int, bytes]:
    """As `error_answer`, off the loop for an unexpected error: formatting a large traceback can take seconds."""
    return error_answer(error) if isinstance(error, FastFlightError) else await off_loop(error_answer, error)


async def send_error(send: Send, error: BaseException, kind: str = "http") -> None:
    """Send the answer for `error`. `kind` is `websocket.http` for an upgrade."""
    status, body = await error_answer_off_loop(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if isinstance(error, HttpRefusal):
        headers += error.headers
    if status == 401:
        # Basic is accepted too, but not named: browsers would open a login window of their own. The connection closes:
        # nothing more that the client sends on it is read.
        headers += [(b"www-authenticate", b'Bearer realm="fastflight"'), (b"connection", b"close")]
    if status == 503:
        seconds = error.retry_after_seconds if isinstance(error, ResourceExhausted) else RETRY_SECONDS
        headers.append((b"retry-after", b"%d" % math.ceil(seconds)))
    if kind != "http":  # for plain HTTP, uvicorn adds these
        headers += EVERYWHERE
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


def _body(content: dict[str, object], text: str) -> bytes:
    return json.dumps({**content, "text": text}, ensure_ascii=False).encode(errors="replace")
