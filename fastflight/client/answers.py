"""What a server answers, as data classes. Answers that do not fit raise `ProtocolError`.

Imports neither Arrow nor pydantic: a command on a board without a server needs the data classes alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastflight.client.local_files import agrees
from fastflight.client.local_names import board_path, device_name
from fastflight.client.validation import text, validating, value, whole
from fastflight.errors import ProtocolError
from fastflight.gap import Gap

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
# Names the server when the caller gives no location. The commands use it too.
SERVER_VARIABLE = "FASTFLIGHT_SERVER"
# Seconds that a call without a stream may take. The slowest is a hash of a large file on a small board.
DEFAULT_TIMEOUT = 60.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Endpoints that are read at the same time. More gain little if one server holds all of them.
PARALLEL = 4
# Seconds that a live plot draws, and shows.
LIVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the server. `open`: whether its line is open. `holder`: what uses it now, such as a tool, or None.

    `kind`: `micropython`; `lines` for one that only prints; or `unknown` until the device has shown what it is.
    `recording`: `recording`, or `recording failed: ` and the reason; None if the device is not being recorded.
    `publishing`: each output of the device, its state and its counts, as text. Empty for a caller without `admin`.
    `trouble`: why the device cannot be used, or is not known in a cluster whose servers do not all answer; None if it
    can. `crashes`: the number of tracebacks that its program has printed; `last_crash` and `crash` are the time and the
    error of the newest. For a caller that may not read its sessions, there are none.
    """

    name: str
    url: str
    open: bool
    holder: str | None
    recording: str | None = None
    publishing: tuple[str, ...] = ()
    trouble: str | None = None
    crashes: int = 0
    last_crash: datetime | None = None
    crash: str | None = None
    kind: str = "unknown"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording of the server.

    `state`: `recording`; `recording failed: ` and the reason; `kept` if nothing is being added; or, in a cluster whose
    servers do not all answer, `unknown: ` and the reason. `rows` and `bytes` are the stored rows and their size on
    disk. `first_seq` and `next_seq` are the sequence number of the first row and the one after the last. `gaps`: how
    many gaps there are, until now, and `newest_gap` the last that is no damage. `lost`: rows that are known to be
    missing in them. `failures`: failed attempts to record since the server started.
    `damage`: places in the files that cannot be read. `waiting`: rows that a server of a cluster has recorded and not
    stored in the shared recording yet.
    """

    name: str
    state: str
    rows: int
    bytes: int
    first_seq: int
    next_seq: int
    first_time: datetime | None
    last_time: datetime | None
    lost: int
    failures: int
    damage: tuple[str, ...]
    # Where it is stored on the server's computer. Only `start_recording` reports it.
    folder: str = ""
    waiting: int = 0
    gaps: int = 0
    newest_gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder on a device. `kind` is `file` or `folder`; `modified` is None if the board keeps no times."""

    path: str
    kind: str
    size: int
    modified: datetime | None


@dataclass(frozen=True, slots=True)
class Digest:
    """A file's digest in hexadecimal, computed by the board. `algorithm` is `sha256`, or `crc32` on smaller boards."""

    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file below a folder on a device. The digest is empty if none was requested."""

    size: int
    algorithm: str = ""
    digest: str = ""

    def same(self, local: Path) -> bool:
        """Whether a local file has the same size and digest."""
        here = local.is_file() and not local.is_symlink() and local.stat().st_size == self.size
        return here and agrees(local, self.algorithm, self.digest)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: its rows, the size of the file on the device, and its sha256 (empty if unknown)."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of copying a file: it is the same here and on the device.

    `bytes` and `sha256` are those of the file. `resumed_at`: the bytes that an earlier, interrupted copy had moved, and
    that were not moved again. `unchanged`: the files were already the same, and nothing was moved.
    """

    bytes: int
    sha256: str
    resumed_at: int = 0
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class CopiedTree:
    """The result of copying a folder: its files are the same here and on the device. Paths are relative to it.

    `files` were moved, `bytes` is their total size. `unchanged` were already the same. `skipped` are entries of a local
    folder that are neither files nor folders, such as links. `ignored` are those that the option `ignore` matched; a
    local folder among them ends in a slash. `removed` are files that only the target had, with the option `delete`.
    """

    files: tuple[str, ...]
    bytes: int
    unchanged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def server_url(text: str, *, encrypted: bool = False) -> str:
    """Return the URL of a server. `HOST:PORT` alone is one of a server without TLS, or `encrypted` with it."""
    is_short = "://" not in text and re.fullmatch(r"([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}", text)
    return f"grpc{'+tls' * encrypted}://{text}" if is_short else text


def location_of(location: str | None, *, encrypted: bool = False) -> str:
    """Return the URL of `location`, or if None of the server named by the environment, or `DEFAULT_LOCATION`."""
    named = location if location is not None else os.environ.get(SERVER_VARIABLE) or DEFAULT_LOCATION
    return server_url(named, encrypted=encrypted)


def device_of(fields: Mapping[str, Any]) -> Device:
    with validating("what the server says of a device"):
        holder, recording, trouble = (fields.get(key) for key in ("holder", "recording", "trouble"))
        crashes = fields.get("crashes")  # older servers do not have it
        return Device(
            name=device_name(text(fields["name"])),
            url=text(fields["url"]),
            open=bool(fields.get("open")),
            holder=None if holder is None else text(holder),
            recording=None if recording is None else text(recording),
            publishing=tuple(map(_format_output, fields.get("publishing", ()))),
            trouble=None if trouble is None else text(trouble),
            crashes=0 if crashes is None else whole(crashes["count"]),
            last_crash=None if crashes is None else EPOCH + timedelta(milliseconds=whole(crashes["last"])),
            crash=None if crashes is None else f"{text(crashes['error'])} at {text(crashes['place'])}",
            kind=text(fields.get("kind", "unknown")),
        )


def _format_output(output: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{whole(output[name])} {name}" for name in ("sent", "waiting", "refused", "misfits", "lost"))
    return f"{text(output['output'])} {text(output['state'])} ({counts})"


def recorded_of(fields: Mapping[str, Any]) -> Recorded:
    with validating("what the server says of a recording"):
        first, last = (
            None if fields[key] is None else datetime.fromisoformat(text(fields[key]))
            for key in ("first_time", "last_time")
        )
        numbers = ("rows", "bytes", "first_seq", "next_seq", "lost", "failures")
        return Recorded(
            name=device_name(text(fields["name"])),
            state=text(fields["state"]),
            first_time=first,
            last_time=last,
            damage=tuple(map(text, fields["damage"])),
            folder=text(fields.get("folder", "")),
            # Older servers do not have these.
            waiting=whole(fields.get("waiting", 0)),
            gaps=whole(fields.get("gaps", 0)),
            newest_gap=Gap.of(gap) if (gap := fields.get("newest_gap")) is not None else None,
            **{key: whole(fields[key]) for key in numbers},
        )


def entries_of(batches: Iterable[pa.RecordBatch]) -> list[Entry]:
    """Return the rows of a listing as entries."""
    return entries_of_rows(row for batch in batches for row in batch.to_pylist())


def entries_of_rows(rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """As `entries_of`, for rows as dictionaries."""
    with validating("a listing of the server"):
        return [_entry(row, row["modified"]) for row in rows]


def results_of(bodies: Iterable[bytes], location: str) -> list[Any]:
    """Decode the JSON results of an action. Empty ones are left out."""
    return [value(body, "an action's result", location) for body in bodies if body]


def single(results: list[Any], action: str, location: str) -> dict[str, Any]:
    """Return the only result of an action. Raises `ProtocolError` unless it is exactly one JSON object."""
    if len(results) != 1 or not isinstance(results[0], dict):
        raise ProtocolError(f"{action} did not return exactly one object", where=location)
    return results[0]


def entry_of(fields: Mapping[str, Any]) -> Entry:
    with validating("what the server says of a file"):
        seconds = fields.get("modified")
        return _entry(fields, None if seconds is None else EPOCH + timedelta(seconds=seconds))


def _entry(fields: Mapping[str, Any], modified: datetime | None) -> Entry:
    if not (modified is None or isinstance(modified, datetime)):
        raise TypeError("no time")
    return Entry(
        path=board_path(text(fields["path"])), kind=text(fields["kind"]), size=whole(fields["size"]), modified=modified
    )


def digest_of(fields: Mapping[str, Any]) -> Digest:
    with validating("a digest of the server"):
        return Digest(algorithm=text(fields["algorithm"]), digest=text(fields["digest"]))


def remote_entries_of(results: Iterable[Any]) -> list[tuple[str, RemoteEntry]]:
    """Return the results of `file.hash` for a folder: paths on the device, with sizes and digests."""
    with validating("what the server says of its files"):
        return [
            (
                board_path(text(each["path"])),
                RemoteEntry(whole(each["size"]), text(each["algorithm"]), text(each["digest"])),
            )
            for each in results
        ]
