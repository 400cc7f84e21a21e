"""The keyword options of the client's verbs, each described once.

The methods of `FastFlightClient` and `AsyncFastFlightClient` take them as `**options: Unpack[ReadOptions]`, and so on.
All may be left out; None means the default. Verbs with few options have them in their signature instead.
`fastflight.client.progress` describes the callbacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from fastflight.client.progress import Report, Resuming, TreeReport
from fastflight.errors import nearest
from fastflight.service.choices import Decimal, Format, Infer, Method, Mode, OnError, RecordedAs, SessionFormat


class FileOptions(TypedDict, total=False):
    """How a file is reached; for all verbs below that read or write files.

    - `mode`: where the server handles the request: `async` (default) on an event loop, or `sync` in the call's thread.
    - `transfer`: how bytes are encoded on the line. `auto` (default) is the fastest that the board supports.
    - `deflate`: whether to compress what is written, if the board can inflate. By default not on lines known to have
      1 Mbaud or more.
    - `interrupt`: stop the program that the device is running. By default such a device raises `BusyError`.
    """

    mode: Mode
    transfer: Method
    deflate: bool | None
    interrupt: bool


class WriteOptions(FileOptions, total=False):
    """The options of `write`: those of `FileOptions`, and

    - `format`: the format of the device's file. By default its ending decides.
    - `columns`: the names of the columns to keep; for `packed`, of the fields.
    - `record`: the layout of one record of a `packed` file, as for Python's `struct`: `<IfH`.
    - `progress`: a `Report`, called for each batch.
    """

    format: Format | None
    columns: Sequence[str] | None
    record: str | None
    progress: Report | None


class TextOptions(TypedDict, total=False):
    """How a text file (`csv`, `jsonl`) is written. The server finds out what is left out, and says where it guessed.

    - `header`: `auto` (default), `none`, or the number of the line that names the columns, 1 for the first.
    - `delimiter`: the character between cells; a blank stands for any number of blanks.
    - `decimal`: `.` or `,`.
    - `skip_rows`: how many lines to skip at the beginning.
    - `comment`: the character that begins a line to skip.
    - `encoding`: a name that Python knows, such as `cp1252`.
    - `null_values`: texts that mean null, besides an empty cell.
    """

    header: Literal["auto", "none"] | int
    delimiter: str | None
    decimal: Decimal | None
    skip_rows: int
    comment: str | None
    encoding: str | None
    null_values: Sequence[str] | None


class ReadOptions(WriteOptions, TextOptions, total=False):
    """The options of `read`: those of `WriteOptions`, `FileOptions` and `TextOptions`, and

    - `schema`: the type of each column, by Arrow's names: `{"celsius": "double"}`. Rows then come as they arrive.
    - `infer`: what decides the types of a text file without a schema: the whole `file` (default), which is read first,
      or a `sample` of its first 64 KiB; then rows come as they arrive, and later values that do not fit become null.
    - `sample_rows`: with `infer="sample"`, the sample ends once these rows are in it, at 4 KiB or later.
    - `batch_rows`: the most rows of a batch.
    - `on_error`: `skip` (default) counts what does not fit; `fail` raises `DataError` for
      all that the summary would tell.
    """

    schema: Mapping[str, str] | None
    infer: Infer
    sample_rows: int | None
    batch_rows: int | None
    on_error: OnError


class FleetOptions(ReadOptions, total=False):
    """The options of `read_fleet`: those of `ReadOptions`, `WriteOptions`, `FileOptions` and
    `TextOptions`, and

    - `ordered`: return the rows device by device. By default they come as they arrive.
    """

    ordered: bool


class TreeCopyOptions(FileOptions, total=False):
    """The options of `put_tree` and `get_tree`: those of `FileOptions`, and

    - `skip_unchanged`: do not move files whose size and digest are the same on both sides.
    - `ignore`: globs of files and folders to leave out. `*.pyc` matches a name in any folder, `docs/*.md` a path
      relative to the folder that is copied, and `build/` only folders. By default nothing is left out.
    - `delete`: afterwards remove files of the target that the source does not have, except those that `ignore` matches.
    - `progress`: a `TreeReport`, called as files are moved.
    """

    skip_unchanged: bool
    ignore: Sequence[str]
    delete: bool
    progress: TreeReport | None


class FileCopyOptions(FileOptions, total=False):
    """The options of `put_file` and `get_file`: those of `FileOptions`, and

    - `resume`: continue an interrupted copy, and keep what was copied if this one is interrupted. True by default.
    - `skip_unchanged`: move nothing if size and digest are the same on both sides.
    - `progress`: a `Report`, called as the copy goes on.
    - `resuming`: a `Resuming`, called before an interrupted copy continues.
    """

    resume: bool
    skip_unchanged: bool
    progress: Report | None
    resuming: Resuming | None


class TrafficOptions(TypedDict, total=False):
    """How the traffic of a device is read, live or recorded.

    - `mode`: where the server handles the request: `async` (default) on an event loop, or `sync` in the call's thread.
    - `format`: `bytes` (default) as they came, or `lines`, `jsonl` or `csv`, one row per line.
    - `schema`: the type of each column, by Arrow's names. `jsonl` and `csv` need it.
    - `columns`: the names of the columns to keep.
    - `batch_rows`: the most rows of a batch.
    - `limit_rows`: end after this many rows.
    - `since_seconds`: begin this many seconds ago.
    """

    mode: Mode
    format: SessionFormat
    schema: Mapping[str, str] | None
    columns: Sequence[str] | None
    batch_rows: int | None
    limit_rows: int | None
    since_seconds: float | None


class SessionOptions(TrafficOptions, total=False):
    """The options of `session`: those of `TrafficOptions`, and

    - `since_seq`: begin at this sequence number. By default a session begins now.
    - `flush_ms`: the most milliseconds that a row waits for its batch to fill up. 0: none.
    - `limit_seconds`: end after this many seconds.
    - `reconnect`: continue when the device was lost and has come back. By default the session ends.
    - `requests`: include the traffic of requests to the device. A column `request` marks it.
    - `as_`: `rows` for the typed rows that the device prints, without `format` and `schema`. The session ends with
      `layout changed` before a line that its columns do not hold; open it again at `summary["next_seq"]`.
    - `follow`: by default true. If it is false, the session has what is in memory, and ends.
    """

    since_seq: int | None
    flush_ms: int | None
    limit_seconds: float | None
    reconnect: bool
    requests: bool
    as_: RecordedAs | None
    follow: bool


class RecordingOptions(TrafficOptions, total=False):
    """The options of `recording`: those of `TrafficOptions`, and

    - `from_seq`, `to_seq`: the first and the last sequence number, both included.
    - `from_time`, `to_time`: the range of times; `to_time` itself is not included. Without a zone they are local times.
    - `as_`: `rows` for the typed rows that the device prints, without `format` and `schema`.
    """

    from_seq: int | None
    to_seq: int | None
    from_time: datetime | None
    to_time: datetime | None
    as_: RecordedAs | None


# The verbs that take `**options`, with the class that lists them.
OPTIONS: Mapping[str, type] = {
    "read": ReadOptions,
    "read_fleet": FleetOptions,
    "write": WriteOptions,
    "put_file": FileCopyOptions,
    "get_file": FileCopyOptions,
    "put_tree": TreeCopyOptions,
    "get_tree": TreeCopyOptions,
    "session": SessionOptions,
    "recording": RecordingOptions,
}
# Options that the client keeps to itself. All others are keys of the request.
NOT_SENT = ("delete", "ignore", "progress", "resume", "resuming", "skip_unchanged")


def request_keys(verb: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `options` of a verb that are keys of its request. Raises `TypeError` for one that it does not have."""
    return split_options(verb, options)[0]


def split_options(verb: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that are keys of the request, and those for the client itself that are not None.

    Raises `TypeError` for an option that the verb does not have.
    """
    allowed = OPTIONS[verb].__annotations__
    for name in options:
        if name not in allowed:
            raise TypeError(f"{verb}() has no option {name!r}. {nearest(name, allowed)}")
    keys = {name: value for name, value in options.items() if name not in NOT_SENT}
    return keys, {name: value for name, value in options.items() if name in NOT_SENT and value is not None}
