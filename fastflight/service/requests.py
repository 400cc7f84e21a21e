"""Requests: the typed content of a ticket or a command descriptor.

On the wire a request is UTF-8 JSON, `{"type": "<wire name>", ...}`. `decode` refuses unknown types, unknown keys and
bad values with a `RequestError` that names the key, what is allowed and the nearest match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr


class Verb(StrEnum):
    """What may be done with a device, or with the server itself."""

    # Its files and listings, what the board says of itself.
    READ = "read"
    # Its files changed. Whoever writes main.py has it run at the next reset.
    WRITE = "write"
    # Its live output and recordings heard.
    SESSION = "session"
    # Code run or stopped: exec, reset, `interrupt`, bytes typed into a session (the raw REPL).
    EXEC = "exec"
    # The server: its statistics, recordings started and stopped, streams of others cancelled. Implies no other verb.
    ADMIN = "admin"


Mode = Literal["sync", "async"]
Format = Literal["csv", "jsonl", "packed", "arrow", "raw"]
SessionFormat = Literal["bytes", "lines", "jsonl", "csv"]
OnError = Literal["skip", "fail"]
# How the bytes of a file cross the line; `auto` is the fastest that the board can do.
Method = Literal["auto", "binary", "base64", "literal"]
# What may be done with a request. Describing it takes what reading it does.
Doing = Literal["read", "write", "exchange", "describe"]
# The verb that each takes on the device that the request `concerns`; None: whoever has proven who they are may.
Demands = Mapping[Doing, Verb | None]

# A ticket is a request, not a payload: the largest sensible one holds some code to execute.
MAX_REQUEST_BYTES = 256 * 1024
# FAT and littlefs allow 255 bytes per name; a path is a few of them.
MAX_PATH_CHARACTERS = 1024
# A glob over names, as in `FleetFile`. Matching is linear in it for each name.
MAX_GLOB_CHARACTERS = 1024
MAX_COLUMNS = 4096
MAX_BATCH_ROWS = 1_000_000
MAX_CODE_CHARACTERS = 128 * 1024
# Names in one request: more do not fit into `MAX_REQUEST_BYTES` anyway. A larger tree is asked for in several.
MAX_FILES = 10_000
# How the names begin under which a device keeps what a write that broke off has left: no part of a tree.
LEFT_BEHIND = ".fastflight-"
# A year: longer than any server runs, short enough that times stay within what Arrow can hold.
MAX_SECONDS = 366 * 86_400
# Sequence numbers are uint64; JSON numbers are exact up to here.
MAX_SEQ = 2**53
# The largest file of littlefs and FAT (4 GiB less one byte) has no later offset.
MAX_OFFSET = 2**32

# The benchmark table is a few batches repeated; this many rows are 200 GB of the default one.
MAX_MOCK_ROWS = 1_000_000_000
# Parts of one flight: enough for a rolling window of small ones, and a FlightInfo far below what gRPC carries.
MAX_ENDPOINTS = 1024

DeviceName = Annotated[str, Field(min_length=1, max_length=255)]
DevicePath = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS)]
BatchRows = Annotated[int, Field(ge=1, le=MAX_BATCH_ROWS)]


class Request(BaseModel):
    """What all requests share. `mode` says which path serves it: the asking thread, or an event loop.

    Each type declares what it `demands`; what it does not declare is granted to nobody, where identities are proven.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    type: ClassVar[str]
    demands: ClassVar[Demands] = {}

    mode: Mode = "async"

    @property
    def belongs_to(self) -> str | None:
        """The device that it is about, on whose event loop it runs; None where it is about none, or about several."""
        device = getattr(self, "device", None)
        return device if isinstance(device, str) else None

    @property
    def concerns(self) -> str | None:
        """The device on which who asks must have been granted what it `demands`; None as in `belongs_to`."""
        return self.belongs_to


# Where the metadata of an answer's schema says what file is read, if the request wants it to `describe` that.
FILE_DESCRIPTION = b"fastflight.file"


class DeviceFile(Request):
    """Rows of a file on a device, or rows to be written to it.

    `transfer` and `deflate` say how the bytes cross the line. `deflate` compresses what shrinks, where the board can;
    left out, only on a line whose speed is known and below 1 Mbaud. For format `raw` only: reading begins at `offset`
    and ends after `limit` bytes, and `resume` lets a write go on where one that broke off has ended. `sha256` is what
    the file that is written has to have; a write cannot go on without it.

    `describe` has the answer's schema say what is read: its metadata holds, under `fastflight.file`, a JSON object with
    `kind`, `size` and `modified`, and for `digest` also `algorithm` and `digest` as the board takes it (empty where
    it cannot). The board is asked just before the file is read, by the same owner of the line. A folder has no rows.
    """

    type: ClassVar[str] = "device.file"
    demands: ClassVar[Demands] = {"read": Verb.READ, "write": Verb.WRITE}

    device: DeviceName
    path: DevicePath
    format: Format | None = None
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    record: Annotated[str | None, Field(max_length=MAX_COLUMNS)] = None
    batch_rows: BatchRows = 4096
    flush_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    on_error: OnError = "skip"
    transfer: Method = "auto"
    deflate: bool | None = None
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = 0
    limit: Annotated[int | None, Field(ge=0, le=MAX_OFFSET)] = None
    describe: Literal["size", "digest"] | None = None
    resume: bool = False
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    interrupt: bool = False


class FleetFile(Request):
    """Rows of one file of many devices, with a leading column `device`.

    `devices` is a glob over their names. The columns are those of `schema`, or else of the first device that can be
    read. With `on_error` `skip` rows that do not fit and devices that cannot be read are named in the metadata, with
    `fail` the first of either ends the stream. `ordered`: device by device, else as the rows come.
    """

    type: ClassVar[str] = "fleet.file"
    demands: ClassVar[Demands] = {"read": Verb.READ}

    devices: Annotated[str, Field(min_length=1, max_length=MAX_GLOB_CHARACTERS)] = "*"
    path: DevicePath
    ordered: bool = False
    format: Format | None = None
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    record: Annotated[str | None, Field(max_length=MAX_COLUMNS)] = None
    batch_rows: BatchRows = 4096
    flush_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    on_error: OnError = "skip"
    transfer: Method = "auto"
    deflate: bool | None = None
    interrupt: bool = False
    # Which of the devices whose names fit exist for who asks. Not on the wire: each server says so by itself.
    _takes: Callable[[str], bool] | None = PrivateAttr(default=None)

    def narrowed(self, takes: Callable[[str], bool]) -> Self:
        """The same for those devices only that `takes`; for the others it is as if they were not there."""
        narrowed = self.model_copy()
        narrowed._takes = takes
        return narrowed

    def existing(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that exist for who asks."""
        return [name for name in names if self._takes is None or self._takes(name)]


class DeviceTree(Request):
    """Every file below a folder on a device, or files to be written there: rows of `path, offset, data`.

    `path` in the rows is relative to the folder. `files` names those to read; left out, all of them.
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
    """One row per entry of a folder on a device."""

    type: ClassVar[str] = "device.listing"
    demands: ClassVar[Demands] = {"read": Verb.READ}

    device: DeviceName
    path: DevicePath = "/"
    recursive: bool = False
    interrupt: bool = False


class DeviceExec(Request):
    """The output lines of a piece of code, as it runs."""

    type: ClassVar[str] = "device.exec"
    demands: ClassVar[Demands] = {"read": Verb.EXEC}

    device: DeviceName
    code: Annotated[str, Field(max_length=MAX_CODE_CHARACTERS)]
    # Seconds of silence after which the code is taken to hang and is interrupted.
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    interrupt: bool = False


class Ticks(BaseModel):
    """A column that tells when, by the board's clock.

    It counts `unit`s and starts again after `period` of them; 0 if it never does. The board's clock and the host's
    differ in rate by at most `drift_ppm` millionths; lines are compared over `window_seconds`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: Annotated[str, Field(min_length=1)]
    unit: Literal["s", "ms", "us", "ns"] = "ms"
    # MicroPython's `ticks_ms` and `ticks_us` on most ports.
    period: Annotated[int, Field(ge=0, le=2**64)] = 2**30
    # Crystals are within 50, and so are hosts' clocks; a resonator or an RC oscillator is not.
    drift_ppm: Annotated[int, Field(ge=1, le=100_000)] = 100
    window_seconds: Annotated[float, Field(ge=0.001, le=86_400)] = 10.0


def _ticks(given: Any) -> Any:
    """A column's name alone will do."""
    return {"column": given} if isinstance(given, str) else given


class DeviceSession(Request):
    """The live traffic of a device, or bytes to be sent to it.

    It begins now, at the number `since_seq`, or `since_seconds` back, as far as it is kept. `schema` is for `jsonl` and
    `csv`, and needed there; `columns` are those to keep, of all columns. With `ticks` there is one more, `board_time`:
    what that column tells, by the server's clock. Rows wait for their batch at most `flush_ms`. With `reconnect` it
    goes on when the device is gone and comes back, else it ends. With `requests` it shows what requests say to the
    device and what they are answered, too.
    """

    type: ClassVar[str] = "device.session"
    demands: ClassVar[Demands] = {"read": Verb.SESSION, "write": Verb.EXEC, "exchange": Verb.EXEC}

    device: DeviceName
    since_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    since_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    format: SessionFormat = "bytes"
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    ticks: Annotated[Ticks | None, BeforeValidator(_ticks)] = None
    batch_rows: BatchRows = 4096
    flush_ms: Annotated[int, Field(ge=0, le=60_000)] = 100
    limit_rows: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    limit_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    reconnect: bool = False
    requests: bool = False


class Recording(Request):
    """A kept session: the traffic of a device as it was recorded, whole or a range of it.

    Numbers are those of the live session, from `from_seq` to `to_seq`, both included. Times are those of the rows:
    from `from_time` on, before `to_time`; `since_seconds` is `from_time` that far back. The other keys are as in
    `device.session`.
    """

    type: ClassVar[str] = "recording"
    demands: ClassVar[Demands] = {"read": Verb.SESSION}

    name: DeviceName
    from_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    to_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    from_time: AwareDatetime | None = None
    to_time: AwareDatetime | None = None
    since_seconds: Annotated[float | None, Field(ge=0, le=MAX_SECONDS)] = None
    format: SessionFormat = "bytes"
    schema_: Annotated[dict[str, str] | None, Field(alias="schema")] = None
    columns: Annotated[tuple[str, ...] | None, Field(max_length=MAX_COLUMNS)] = None
    ticks: Annotated[Ticks | None, BeforeValidator(_ticks)] = None
    batch_rows: BatchRows = 65_536
    limit_rows: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None

    @property
    def concerns(self) -> str | None:
        """What is kept of a device is heard as the device is."""
        return self.name


class Mock(Request):
    """The benchmark table: `total_rows` x 50 columns of int32 (`simple`), or of mixed types (`complex`).

    It may begin at `first_row`: the rows are those that the whole table has there. get_flight_info divides it into up
    to `endpoints` parts, between batches.
    """

    type: ClassVar[str] = "mock"
    demands: ClassVar[Demands] = {"read": None, "write": None}

    rows_per_batch: BatchRows = 10_000
    # Seconds that the source takes for each row.
    delay_per_row: Annotated[float, Field(ge=0, le=1)] = 0.0
    variant: Literal["default", "simple", "complex"] = "default"
    total_rows: Annotated[int, Field(ge=0, le=MAX_MOCK_ROWS)] = 1_000_000
    first_row: Annotated[int, Field(ge=0, le=MAX_MOCK_ROWS)] = 0
    endpoints: Annotated[int, Field(ge=1, le=MAX_ENDPOINTS)] = 1
