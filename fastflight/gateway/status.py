"""Errors as HTTP answers: one table from the typed errors to status codes.

The body is the JSON that Flight carries in `extra_info`: `code`, `what`, `where`, `hint` and the error's own
attributes; `text` is those in one line, as the command line prints them. Never a traceback, and no path of the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from fastflight.concurrency import failure_of
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
    Stopped,
    StorageError,
    StorageFull,
    TransportError,
    TransportTimeout,
    Unauthenticated,
    UnknownName,
)
from fastflight.gateway.asgi import Header
from fastflight.runtime.failure import error_json, log_unexpected

# A board's traceback is 2,000 characters at most; JSON may write each as six bytes, and an error holds it twice.
MAX_ERROR_BYTES = 32 * 1024
# What a client that is told to come back later is told to wait.
RETRY_SECONDS = 1
# Of every answer, whoever makes it: content is what it is said to be, and no other site is told where its visitor was.
EVERYWHERE = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class HttpRefusal(RequestError):
    """A request that HTTP has a status code of its own for; `headers` are those that the status asks for."""

    def __init__(
        self, status: int, what: str, *, where: str = "", hint: str = "", headers: Iterable[Header] = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.status = status
        self.headers = tuple(headers)


# The first class that fits, so the special ones stand first.
STATUS: tuple[tuple[type[FastFlightError], int], ...] = (
    (UnknownName, 404),
    (FileMissing, 404),
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
    (StorageFull, 507),
    (StorageError, 500),
    (ProtocolError, 502),
)
# What a board says of a request that another one would not be refused for: its client can do something about that.
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


def told(error: BaseException) -> tuple[int, bytes]:
    """The status code and the JSON for `error`. One that nobody expected is logged, and is a number to the peer."""
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


def last_words(error: BaseException, more: Mapping[int, str]) -> bytes:
    """The whole answer for `error`, on a connection that ends with it; `more`: header lines by status."""
    status, body = told(error)
    described = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *EVERYWHERE]
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{more.get(status, '')}connection: close\r\n".encode()
    return b"".join((head, *(b"%b: %b\r\n" % header for header in described), b"\r\n", body))


def _body(content: dict[str, object], text: str) -> bytes:
    return json.dumps({**content, "text": text}, ensure_ascii=False).encode(errors="replace")
