"""Requests: the typed content of a ticket or a command descriptor.

On the wire a request is UTF-8 JSON, `{"type": "<wire name>", ...}`. `service.wire.decode` refuses unknown types,
unknown keys and bad values with a `RequestError` that names the key, the allowed values and the nearest match.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from fastflight.service.choices import (
    MAX_FILES,
    Decimal,
    Format,
    Infer,
    Method,
    Mode,
    OnError,
    RecordedAs,
    SessionFormat,
)
from fastflight.service.versions import MAX_CONDITION_CHARACTERS, matches, version_conflict


class Verb(StrEnum):
    """A right that can be granted on a device, or on the server itself."""

    # Read the files, listings and properties of a device.
    READ = "read"
    # Change the files of a device. The board runs a new main.py at its next reset.
    WRITE = "write"
    # Read the live output and the recordings of a device.
    SESSION = "session"
    # Run and stop code on a device: exec, reset, `interrupt`, bytes sent to a session (the raw REPL).
    EXEC = "exec"
    # Read the server's statistics, start and stop recordings, cancel streams of other identities.
    # Implies no other verb.
    ADMIN = "admin"


# The operations on a request. To describe a request takes the same verb as to read it.
Doing = Literal["read", "write", "exchange", "describe"]
# The verb that each operation requires on the device that the request `concerns`. None: every authenticated caller may.
Demands = Mapping[Doing, Verb | None]

# FAT and littlefs allow 255 bytes for each name; a path is a few names.
MAX_PATH_CHARACTERS = 1024
# A glob over names, as in `FleetFile`. Matching is linear in it for each name.
MAX_GLOB_CHARACTERS = 1024
MAX_COLUMNS = 4096
MAX_BATCH_ROWS = 1_000_000
MAX_CODE_CHARACTERS = 128 * 1024
# A year: longer than any server runs, short enough that times stay within what Arrow can hold.
MAX_SECONDS = 366 * 86_400
# Sequence numbers are uint64; JSON numbers are exact up to here.
MAX_SEQ = 2**53
# No file of littlefs or FAT (at most 4 GiB less one byte) has a later offset.
MAX_OFFSET = 2**32

# Some hundred times what people write, and little enough for a parser.
MAX_QUERY_CHARACTERS = 100_000
MAX_PARAMETERS = 1000
SqlValue = bool | int | float | str | None

# Parts of one flight: enough for clients that read many small parts, a few at a time. The FlightInfo stays far below
# gRPC's limit for a message.
MAX_ENDPOINTS = 1024

DeviceName = Annotated[str, Field(min_length=1, max_length=255)]
DevicePath = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS)]
BatchRows = Annotated[int, Field(ge=1, le=MAX_BATCH_ROWS)]


class Request(BaseModel):
    """The base of all requests. `mode` says where it is served: in the calling thread, or on an event loop.

    Each type declares the verb that each operation `demands`. With authentication, nobody may do an operation that is
    not declared.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, defer_build=True
    )

    type: ClassVar[str]
    demands: ClassVar[Demands] = {}

    mode: Mode = "async"

    @property
    def belongs_to(self) -> str | None:
        """The device on whose event loop the request runs; None if it is about no device, or about several."""
        device = getattr(self, "device", None)
        return device if isinstance(device, str) else None

    @property
    def concerns(self) -> str | None:
        """The device on which the caller needs the verb that the request `demands`; None as in `belongs_to`."""
        return self.belongs_to


class SourceRequest(Request):
    """The base of the requests of own sources (`fastflight.Source`).

    A subclass sets `type`, the name of the source, and has a field for each key of the request. With authentication, a
    caller needs the scope `read:TYPE` to read, and `write:TYPE` to write.
    """

    demands: ClassVar[Demands] = {"read": Verb.READ, "write": Verb.WRITE}

    @property
    def belongs_to(self) -> str:
        """The name of the source as errors show it. No device can have this name."""
        return f"source {self.type}"

    @property
    def concerns(self) -> str:
        """The name of the source, for which scopes are granted as for a device."""
        return self.type


# The key of the file's description in the metadata of an answer's schema, if the request has `describe`.
FILE_DESCRIPTION = b"fastflight.file"
# The key of a file's summary in the metadata of the schema: rejected rows, cells that became null, notes. A JSON object
# with the keys of the trailer. It is there if the server reads the whole file before the first row.
FILE_SUMMARY = b"fastflight.summary"
# The kinds of the values of each column, for the key `kinds` of a request for a file with the same columns.
FILE_KINDS = b"fastflight.kinds"


def _known_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("Not a name of an encoding that Python knows, such as cp1252 or utf-16") from None
    return name


# One character that separates cells, or begins a comment.
Character = Annotated[str, Field(min_length=1, max_length=1)]
MAX_SKIPPED_ROWS = 1_000_000
MAX_NULL_VALUES = 100


class TextKeys(BaseModel):
    """How a text file (`csv`, `jsonl`) is written, and the types of its columns. What is not said is found out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, defer_build=True
    )

    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    header: Literal["auto", "none"] | Annotated[int, Field(ge=1, le=MAX_SKIPPED_ROWS)] = "auto"
    delimiter: Character | None = None
    decimal: Decimal | None = None
    skip_rows: Annotated[int, Field(ge=0, le=MAX_SKIPPED_ROWS)] = 0
    comment: Character | None = None
    encoding: Annotated[str, Field(max_length=40), AfterValidator(_known_encoding)] | None = None
    null_values: Annotated[tuple[str, ...] | None, Field(max_length=MAX_NULL_VALUES)] = None


class FileRequest(TextKeys, Request):
    """The keys that say which rows of a file are read, and how; the base of the requests for files.

    A text file (`csv`, `jsonl`) without a `schema` is read as a whole first: all of it decides the types of its
    columns. With `infer` `sample`, its first 64 KiB do, and rows come as they arrive. With `sample_rows`, the sample
    ends once these rows are in it, at 4 KiB or later, so that few rows come soon.

    With `kinds`, a text file that is read as a whole gets the columns and types that hold the values of other files,
    too: `kinds` describes these values, as the metadata `fastflight.kinds` of the schema of an answer does that has
    this key. It begins as an empty object.

    `transfer` and `deflate` say how the bytes are sent over the line. `deflate` compresses what is written, if it
    shrinks and the board can inflate it. By default it does so unless the line is known to have 1 Mbaud or more.
    """

    demands: ClassVar[Demands] = {"read": Verb.READ}

    path: DevicePath
    format: Format | None = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    record: Annotated[str | None, Field(max_length=MAX_COLUMNS)] = None
    infer: Infer = "file"
    sample_rows: Annotated[int | None, Field(ge=1, le=MAX_BATCH_ROWS)] = None
    kinds: Annotated[dict[str, Any] | None, Field(max_length=MAX_COLUMNS)] = None
    batch_rows: BatchRows = 4096
    flush_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    on_error: OnError = "skip"
    transfer: Method = "auto"
    deflate: bool | None = None
    interrupt: bool = False


# The keys that say how a text file is written.
TEXT_KEYS = tuple(key for key in TextKeys.model_fields if key != "schema_")


Tags = Annotated[str | None, Field(min_length=1, max_length=MAX_CONDITION_CHARACTERS)]


class Conditional(BaseModel):
    """The keys of requests that change a file only in some version.

    With `if_match`, the file must exist, and its entity tag must be in this list; with `if_none_match`, it must not.
    `*` matches every file. The board is asked under the lease under which the file is changed.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    if_match: Tags = None
    if_none_match: Tags = None

    @property
    def conditional(self) -> bool:
        return self.if_match is not None or self.if_none_match is not None

    def check_version(self, etag: str | None) -> None:
        """Raise `VersionConflict` if a condition does not hold; `etag` as `OpenBoard.version` returns it."""
        if self.if_match is not None and (etag is None or not matches(self.if_match, etag)):
            raise version_conflict("if_match")
        if self.if_none_match is not None and etag is not None and matches(self.if_none_match, etag, weak=True):
            raise version_conflict("if_none_match")


class DeviceFile(Conditional, FileRequest):
    """Reads rows from a file on a device, or writes rows to it.

    With `limit` 0 there are no rows: a file that would be read as a whole is only read into the server's cache, and
    notes `{"progress": {"bytes", "size"}}` tell how far that is.

    Some keys are for format `raw` only: reading begins at `offset` and ends after `limit` bytes; `resume` lets a write
    continue an interrupted one. `sha256` is the digest that the written file must have; `resume` needs it. `size` is
    that of the written file: a board without room for it is sent nothing. A write with `if_match` or `if_none_match`
    ends with `VersionConflict`, before any of its rows is taken, if the present file is another version; these two keys
    need the right to read the file, too.

    With `describe`, the metadata of the answer's schema has a JSON object under `fastflight.file`, with `kind`, `size`
    and `modified` of the file. For `digest` it also has `algorithm` and `digest`, as computed by the board (empty if
    the board cannot). The board is asked just before the file is read, under the same lease. A folder has no rows.

    With `cached`, the server keeps any file on its disk by the digest that the board computes, as it does with those
    that it reads as a whole. The board then sends the file only once for each content.
    """

    type: ClassVar[str] = "device.file"
    demands: ClassVar[Demands] = {"read": Verb.READ, "write": Verb.WRITE}

    device: DeviceName
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    limit: Annotated[int | None, Field(ge=0, le=MAX_OFFSET)] = None
    describe: Literal["size", "digest"] | None = None
    cached: bool = False
    resume: bool = False
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    size: Annotated[int | None, Field(ge=0, le=MAX_OFFSET)] = None
    # What the board said of the file before, as `fastflight.file` in the metadata: this content is read from the cache,
    # if it is there. Not sent on the wire.
    _description: dict[str, Any] | None = PrivateAttr(default=None)

    def described(self, description: dict[str, Any] | None) -> Self:
        """Return the same request for the content that has this description."""
        described = self.model_copy()
        described._description = description
        return described


class FleetFile(FileRequest):
    """Reads the rows of one file from many devices, with a leading column `device`.

    `devices` is a glob over their names. Without a `schema`, text files are all read first, and each column has the
    narrowest type that holds its values in all of them; in other formats, the columns are those of the first device
    that can be read. With `on_error` `skip`, the metadata lists the rows that do not fit and the devices that cannot be
    read; with `fail`, the first of these ends the stream. With `ordered`, rows come device by device, else as they
    arrive.
    """

    type: ClassVar[str] = "fleet.file"

    devices: Annotated[str, Field(min_length=1, max_length=MAX_GLOB_CHARACTERS)] = "*"
    ordered: bool = False
    # Whether a device is visible to the caller; None: all are. Not sent on the wire: each server decides by itself.
    _is_visible: Callable[[str], bool] | None = PrivateAttr(default=None)

    def narrowed(self, is_visible: Callable[[str], bool]) -> Self:
        """Return the same request without the devices that are not visible: for the caller they do not exist."""
        narrowed = self.model_copy()
        narrowed._is_visible = is_visible
        return narrowed

    def existing(self, names: Iterable[str]) -> list[str]:
        """Return the `names` that are visible to the caller."""
        return [name for name in names if self._is_visible is None or self._is_visible(name)]


class DeviceTree(Request):
    """Reads all files below a folder on a device, or writes files there: rows of `path, offset, data`.

    `path` in the rows is relative to the folder. `files` are the names of the files to read; by default all are read.
    """

    type: ClassVar[str] = "device.tree"
    demands: ClassVar[Demands] = {"read": Verb.READ, "write": Verb.WRITE}

    device: DeviceName
    path: DevicePath = "/"
    files: Annotated[tuple[DevicePath, ...] | None, Field(max_length=MAX_FILES)] = None
    transfer: Method = "auto"
    deflate: bool | None = None
    interrupt: bool = False


class DeviceListing(Request):
    """Lists a folder on a device: one row for each entry."""

    type: ClassVar[str] = "device.listing"
    demands: ClassVar[Demands] = {"read": Verb.READ}

    device: DeviceName
    path: DevicePath = "/"
    recursive: bool = False
    interrupt: bool = False


class DeviceExec(Request):
    """Runs a piece of code on a device, and reads the lines of its output as they come."""

    type: ClassVar[str] = "device.exec"
    demands: ClassVar[Demands] = {"read": Verb.EXEC}

    device: DeviceName
    code: Annotated[str, Field(max_length=MAX_CODE_CHARACTERS)]
    # The code is interrupted if it prints nothing for this many seconds.
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    interrupt: bool = False


# Ends of a live session that its client did not ask for, as its summary says them in `ended`.
DEVICE_GONE = "device gone"
SERVER_DRAINING = "server draining"
# The end of a session of typed rows whose columns do not hold what the device prints now. A session that is opened
# again, with the summary's `next_seq` as `since_seq`, has the new columns.
LAYOUT_CHANGED = "layout changed"
# The end of a session that does not follow the device.
IN_MEMORY = "end of what is in memory"


class DeviceSession(Request):
    """Reads the live traffic of a device, or sends bytes to it.

    The traffic begins now, at the sequence number `since_seq`, or `since_seconds` ago, as far as it is still in memory.
    Formats `jsonl` and `csv` need a `schema`; `columns` selects some of the columns. A row waits for its batch for at
    most `flush_ms`. With `reconnect` the session goes on after the device was lost and has come back, else it ends.
    With `requests` the traffic includes that of requests: what they send to the device, and its answers.

    With `as` `rows`, the lines are parsed as the device's entry in the fleet file says, or as they are recognised:
    `format` and `schema` are left out. If the device has printed too little, the session waits for more lines. It ends
    with `layout changed` before a line that its columns do not hold, and `next_seq` says where that line begins.

    Without `follow`, the session has only what is in memory, from its beginning or as `since_...` say, and then ends.
    """

    type: ClassVar[str] = "device.session"
    demands: ClassVar[Demands] = {"read": Verb.SESSION, "write": Verb.EXEC, "exchange": Verb.EXEC}

    device: DeviceName
    since_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    since_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    format: SessionFormat = "bytes"
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    batch_rows: BatchRows = 4096
    flush_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    limit_rows: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    limit_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    reconnect: bool = False
    requests: bool = False
    as_: Annotated[RecordedAs | None, Field(alias="as")] = None
    follow: bool = True


def _iso_8601(value: object) -> object:
    # pydantic takes text of digits for a number of seconds since 1970, so "2026" would be in the first hour of 1970.
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("Not a time in ISO 8601, such as 2026-03-01T12:00:00Z") from None


Time = Annotated[AwareDatetime, BeforeValidator(_iso_8601)]


class Recording(Request):
    """Reads the recorded traffic of a device, all of it or a range.

    Sequence numbers are those of the live session, from `from_seq` to `to_seq`, both included. Times are those of the
    rows: `from_time` is included, `to_time` is not. `since_seconds` means a `from_time` that many seconds ago. The
    other keys are as in `device.session`.

    With `as` `rows`, the lines are parsed as the device's entry in the fleet file says, or as they were recognised:
    `format` and `schema` are left out.
    """

    type: ClassVar[str] = "recording"
    demands: ClassVar[Demands] = {"read": Verb.SESSION}

    name: DeviceName
    from_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    to_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    from_time: Time | None = None
    to_time: Time | None = None
    since_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    as_: Annotated[RecordedAs | None, Field(alias="as")] = None
    format: SessionFormat = "bytes"
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    batch_rows: BatchRows = 65_536
    limit_rows: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None

    @property
    def concerns(self) -> str | None:
        """The recorded device: a recording takes the same right as a live session."""
        return self.name


class Sql(Request):
    """Reads the result of a query: one SQL statement that only reads, over the tables that the caller may read.

    `parameters` are the values of `?` or `$1` in order, or of `$name` by name. Each table is read with the rights that
    a request for its file or recording takes.
    """

    type: ClassVar[str] = "sql"
    demands: ClassVar[Demands] = {"read": None}

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
    parameters: Annotated[list[SqlValue], Field(max_length=MAX_PARAMETERS)] | dict[str, SqlValue] | None = None
    # The identity of the caller, which decides what tables there are; None: there is no authentication. Not sent on
    # the wire: each server decides by itself.
    _identity: Any = PrivateAttr(default=None)

    def asked_by(self, identity: object) -> Self:
        """Return the same request with the tables that `identity` may read."""
        asked = self.model_copy()
        asked._identity = identity
        return asked
