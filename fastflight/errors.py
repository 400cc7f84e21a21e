"""Every error that fastflight raises on purpose.

The tree is split first by who must act::

    FastFlightError
    ├── TransportError        the line: check the cable, the address, and other programs that use it
    │   ├── TransportClosed   the peer closed the line
    │   └── TransportTimeout  the peer did not answer in time
    ├── ProtocolError         the board or this program broke the protocol: reset the board, report the error
    ├── DeviceError           the board understood the request and could not carry it out
    │   ├── FileMissing       no such file or folder
    │   ├── DeviceFull        no space left in its file system
    │   ├── DeviceMemory      not enough heap
    │   └── DeviceException   the code raised; has the board's own traceback
    ├── SourceError           an own source has a defect: its author must change it
    ├── StorageError          the host's disk: check it, make room on it
    │   └── StorageFull       no space left for recordings
    ├── BusyError             another holder has it: wait, or ask them
    │   ├── SequenceConflict  another writer appended first: read on from there
    │   └── ResourceExhausted a limit of the server is reached: try again after a while
    ├── RequestError          the caller must change the request
    │   ├── UnknownName       the request names something that does not exist
    │   ├── VersionConflict   the file is not the version that the request names: read it again
    │   ├── QueryLimit        a query reached a limit: ask for less
    │   └── Unsupported       a part of a protocol that this server does not have
    ├── AccessError           the caller has no right to it: another token or scope is needed
    │   ├── Unauthenticated   the caller's identity is not proven
    │   └── Forbidden         the caller's identity is proven, and lacks the right
    ├── Stopped               ended before it was done, on this side: ask again
    └── DataError             bytes do not fit the format or the schema

Each error has a `code`, which is stable on the wire, and says `what` happened, `where`, and what to do next (`hint`).
`str(error)` is these three in one line. It never has a path of the host or a stack trace of the server.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# How much of a board's traceback, or of a peer's bytes, an error has: enough to see the cause, small enough for a gRPC
# trailer.
MAX_QUOTED_CHARACTERS = 2000


class FastFlightError(Exception):
    """Root of the tree. `what` happened, `where` (a device, a path, a key), and what to do next (`hint`)."""

    code = "internal"

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.hint}" if self.hint else text


class TransportError(FastFlightError):
    """The line could not be opened or used."""

    code = "transport"

    @classmethod
    def unexpected(cls, error: Exception) -> TransportError:
        """Return the error for an unexpected exception of a line. It has only its name, so the caller must log it."""
        return cls(f"the server failed to use the line ({type(error).__name__})", hint="See the server's log")


class TransportClosed(TransportError):
    """The peer closed the line, or the cable was pulled. Open the line again before the next use."""

    code = "transport.closed"


class TransportTimeout(TransportError):
    """The peer did not send or accept a byte before the deadline."""

    code = "transport.timeout"


class ProtocolError(FastFlightError):
    """The bytes that came over the line break the protocol."""

    code = "protocol"


class DeviceError(FastFlightError):
    """The board understood the request and could not carry it out.

    `errno` is the name of the board's error number (`"EISDIR"`), if it gave one.
    """

    code = "device"

    def __init__(self, what: str, *, where: str = "", hint: str = "", errno: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.errno = errno


class FileMissing(DeviceError):
    """No such file or folder on the board (ENOENT)."""

    code = "device.file_missing"


class DeviceFull(DeviceError):
    """The board's file system has no room (ENOSPC)."""

    code = "device.full"


class DeviceMemory(DeviceError):
    """The board ran out of heap (MemoryError)."""

    code = "device.memory"


class DeviceException(DeviceError):
    """Code on the board raised. `traceback` is the board's own, `kind` the exception's name (`"ValueError"`)."""

    code = "device.exception"

    def __init__(self, what: str, *, kind: str, traceback: str, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.kind = kind
        self.traceback: str = traceback[-MAX_QUOTED_CHARACTERS:]


class SourceError(FastFlightError):
    """An own source has failed, or has broken the rules of `fastflight.Source`; or the process of a query has ended.

    The server's log has the details of a source.
    """

    code = "source"


class StorageError(FastFlightError):
    """The host could not write or read its stored data. Rows that were acknowledged before are still there."""

    code = "storage"


class StorageFull(StorageError):
    """The host's disk has no room (ENOSPC, EDQUOT). Nothing of the failed write is kept; try again with more room."""

    code = "storage.full"


class BusyError(FastFlightError):
    """Another holder has it. `holder` is the holder's name, if it is known."""

    code = "busy"

    def __init__(self, what: str, *, holder: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.holder = holder


class SequenceConflict(BusyError):
    """An append expected the sequence number `expected`, but the next one of the log is `actual`."""

    code = "busy.sequence"

    def __init__(self, expected: int, actual: int, *, where: str = "") -> None:
        super().__init__(
            f"the rows were to come at sequence number {expected}, but the next one is {actual}",
            where=where,
            hint="Somebody else appended: read from there on, then append again",
        )
        self.expected = expected
        self.actual = actual


class ResourceExhausted(BusyError):
    """A limit of the server is reached; the request was not begun. Ask again after `retry_after_seconds`.

    `scope` names the limit: of streams on the `server`, of other `calls`, of one `identity` or `device`. `limit` is its
    size.
    """

    code = "resource_exhausted"

    def __init__(
        self, what: str, *, scope: str, limit: int, retry_after_seconds: float, where: str = "", hint: str = ""
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.scope = scope
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds


class RequestError(FastFlightError):
    """The request cannot be served. Change it: sending it again unchanged will not help."""

    code = "request"


class UnknownName(RequestError):
    """The request names something that does not exist here, such as a device or a recording."""

    code = "request.unknown_name"


class VersionConflict(RequestError):
    """The file is not the version that the request is for. Nothing was changed."""

    code = "request.version"


class QueryLimit(RequestError):
    """A query was ended because it reached a limit: `memory`, `seconds` or `rows`. `size` is the size of the limit.

    Flight's do_get does not transport these two: they are empty and 0 then, and the text has them.
    """

    code = "request.limit"

    def __init__(self, what: str, *, limit: str = "", size: float = 0.0, where: str = "query", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.limit = limit
        self.size = size


class Unsupported(RequestError):
    """The request uses a part of a protocol that this server does not have. Use another part, or another server."""

    code = "request.unsupported"


class AccessError(FastFlightError):
    """The caller has no right to this. Nothing was done."""

    code = "access"


class Unauthenticated(AccessError):
    """The request has no valid proof of identity. The error never reveals what exists on the server."""

    code = "access.unauthenticated"


class Forbidden(AccessError):
    """The caller's identity is proven, and lacks the right to this."""

    code = "access.forbidden"


class Stopped(FastFlightError):
    """The work ended before it was done: it was cancelled, or the server shuts down. Ask again."""

    code = "stopped"


class DataError(FastFlightError):
    """Bytes or batches that do not fit the format or the schema."""

    code = "data"


class IncompleteWarning(UserWarning):
    """An answer is incomplete but has not failed: devices could not be read, or most rows do not fit the schema."""


# Names that a hint lists. A client gets an error in a header, and headers have a limit of a few kilobytes.
MAX_KNOWN = 50


def quantity(count: int, noun: str) -> str:
    """Return a number with its noun, for messages: `1 row`, `2,000 rows`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a `hint` that lists the allowed names. If one is similar to `name`, the hint suggests it first."""
    names = sorted(allowed)
    if not names:
        return "There are none"
    close = difflib.get_close_matches(name, names, n=1)
    more = f" and {len(names) - MAX_KNOWN} more" if len(names) > MAX_KNOWN else ""
    known = f"Known: {', '.join(names[:MAX_KNOWN])}{more}"
    return f"Did you mean {close[0]!r}? {known}" if close else known
