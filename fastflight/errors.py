"""Every error that fastflight raises on purpose.

The tree is split first by who must act::

    FastFlightError
    ├── TransportError        the line: plug it in, free it, look at the address
    │   ├── TransportClosed   the peer went away
    │   └── TransportTimeout  the peer said nothing in time
    ├── ProtocolError         the board (or we) broke the wire protocol: reset it, report it
    ├── DeviceError           the board understood and could not
    │   ├── FileMissing       no such file or folder
    │   ├── DeviceFull        no space left in its file system
    │   ├── DeviceMemory      not enough heap
    │   └── DeviceException   the code raised; carries the board's own traceback
    ├── StorageError          the host's disk: look at it, make room on it
    │   └── StorageFull       no space left for recordings
    ├── BusyError             somebody else holds it: wait, or ask them
    │   ├── SequenceConflict  somebody else appended first: read on from there
    │   └── ResourceExhausted a limit of the server is met: try again after a while
    ├── RequestError          the caller must change the request
    │   └── UnknownName       it names something that is not there
    ├── AccessError           who asks may not: a token, another scope
    │   ├── Unauthenticated   nobody knows who asks
    │   └── Forbidden         it is known who asks, and not granted
    ├── Stopped               ended from our side before its end: ask again
    └── DataError             bytes do not fit the format or the schema

Each error has a wire-stable `code`, and says `what` happened, `where`, and what to do next (`hint`). `str(error)` is
these three in one line; it never holds a path of the host or a stack trace of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# A board's traceback or a peer's bytes inside a message: enough to see the cause, small enough for a gRPC trailer.
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
        """For one that a reader of a line met and that is none of ours. Log it: this holds nothing but its name."""
        return cls(f"the server failed to use the line ({type(error).__name__})", hint="See the server's log")


class TransportClosed(TransportError):
    """The peer closed the line, or it was pulled. Open it again before the next use."""

    code = "transport.closed"


class TransportTimeout(TransportError):
    """The peer did not send or take a byte before the deadline."""

    code = "transport.timeout"


class ProtocolError(FastFlightError):
    """What came over the line is not what the protocol allows here."""

    code = "protocol"


class DeviceError(FastFlightError):
    """The board understood the request and could not carry it out.

    `errno` is the name of the board's error number (`"EISDIR"`), where it gave one.
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
        self.traceback = traceback[-MAX_QUOTED_CHARACTERS:]


class StorageError(FastFlightError):
    """The host could not write or read what it keeps. What was acknowledged before is still there."""

    code = "storage"


class StorageFull(StorageError):
    """The host's disk has no room (ENOSPC, EDQUOT). Nothing of what failed is kept; try again when there is room."""

    code = "storage.full"


class BusyError(FastFlightError):
    """Somebody else holds it. `holder` says who, when that is known."""

    code = "busy"

    def __init__(self, what: str, *, holder: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.holder = holder


class SequenceConflict(BusyError):
    """An append said that its rows come at `expected`; the next sequence number of the log is `actual`."""

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
    """`limit` is met (`scope`): of streams on the `server`, of other `calls`, of one `identity` or `device`.

    What was asked for was not begun. Ask again after `retry_after_seconds`.
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
    """The request cannot be served as it stands; sending it again unchanged will not help."""

    code = "request"


class UnknownName(RequestError):
    """The request names a device, path or dataset that does not exist here."""

    code = "request.unknown_name"


class AccessError(FastFlightError):
    """Whoever asks may not have it. Nothing was done."""

    code = "access"


class Unauthenticated(AccessError):
    """No proof of who asks was given, or none that is good. It never says what there would be to see."""

    code = "access.unauthenticated"


class Forbidden(AccessError):
    """It is known who asks, and that this is not granted."""

    code = "access.forbidden"


class Stopped(FastFlightError):
    """Work ended before it was done: cancelled, or the server that did it shuts down. Ask again."""

    code = "stopped"


class DataError(FastFlightError):
    """Bytes or batches that do not fit the format or the schema."""

    code = "data"


class IncompleteWarning(UserWarning):
    """An answer did not fail and yet lacks rows: devices could not be read, or most rows do not fit the schema."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Say what is allowed where `name` stands, nearest match first: text for a `hint`."""
    names = sorted(allowed)
    if not names:
        return "There are none"
    close = difflib.get_close_matches(name, names, n=1)
    listed = ", ".join(names)
    return f"Did you mean {close[0]!r}? Known: {listed}" if close else f"Known: {listed}"
