"""What the sync and the async client ask for, written once: requests and actions as bytes, answers as data classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

from fastflight.client.meaning import text, understood, value, whole
from fastflight.errors import ProtocolError, RequestError
from fastflight.service.requests import DeviceFile, DeviceTree, Request
from fastflight.service.wire import validate

R = TypeVar("R", bound=Request)

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
# The server that is meant where none is named: as for the commands.
SERVER_VARIABLE = "FASTFLIGHT_SERVER"
# Seconds that a call without a stream may take: a hash of a large file on a small board is the slowest of them.
DEFAULT_TIMEOUT = 60.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Endpoints that are read at a time: more gain little where one server gives all of them.
PARALLEL = 4


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the server. `open`: its line is open; `holder`: who has it now, None when nobody has.

    `recording`: `recording`, or `recording failed: ` and why; None where it is not recorded.
    """

    name: str
    url: str
    open: bool
    holder: str | None
    recording: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording of the server. `state`: `recording`, `recording failed: ` and why, or `kept` when nothing is added.

    Rows that are kept, their bytes as stored, their numbers (`next_seq`: after the last one) and times. `lost`: chunks
    that are missing among them, as gaps of a replay are. `failures`: tries to record that failed since the server
    started. `damage`: places in its files that cannot be read.
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
    # Where it is on the server's computer: told to those who switch it on.
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder on a device (`kind`: `file` or `folder`). `modified` is None where the board keeps no times."""

    path: str
    kind: str
    size: int
    modified: datetime | None


@dataclass(frozen=True, slots=True)
class Digest:
    """A file's digest as the board takes it: `algorithm` is `sha256` or, on smaller boards, another."""

    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class Written:
    """What is on the device now: rows, the file's bytes, and their sha256 (empty where the board cannot tell)."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that is now the same here and on the device.

    `bytes` and `sha256` are those of the file. `resumed_at`: how much of it an earlier copy had left, and was not moved
    again. `unchanged`: it was the same already, and nothing was moved.
    """

    bytes: int
    sha256: str
    resumed_at: int = 0
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class CopiedTree:
    """A folder whose files are now the same here and on the device. Paths are relative to it.

    `files` were moved, `bytes` in all; `unchanged` were the same already. `skipped`, in a local folder, are links and
    what else is neither a file nor a folder.
    """

    files: tuple[str, ...]
    bytes: int
    unchanged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def location_of(location: str | None) -> str:
    """Where a server is: by default what the environment says, as for the commands."""
    return location if location is not None else os.environ.get(SERVER_VARIABLE) or DEFAULT_LOCATION


def build(request: type[R], **values: Any) -> R:
    """A request of these values, those that are None left to their defaults. `RequestError` names what is wrong."""
    return validate(request, {key: _as_json(value) for key, value in values.items() if value is not None})


def file_request(device: str, path: str, **values: Any) -> DeviceFile:
    """A request for the bytes of a file."""
    return build(DeviceFile, device=device, path=path, format="raw", **values)


def tree_request(device: str, folder: str, **values: Any) -> DeviceTree:
    """A request for the files below a folder."""
    return build(DeviceTree, device=device, path=folder, **values)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return _zoned(value).isoformat()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _zoned(time: datetime) -> datetime:
    """Without a zone, it is a time of this computer, which does not know all of them."""
    try:
        return time if time.tzinfo is not None else time.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise RequestError("no time here", where=str(time), hint="Give it with its zone") from error


def device_of(given: Mapping[str, Any]) -> Device:
    with understood("what the server says of a device"):
        holder, recording = (given.get(key) for key in ("holder", "recording"))
        return Device(
            name=text(given["name"]),
            url=text(given["url"]),
            open=bool(given.get("open")),
            holder=None if holder is None else text(holder),
            recording=None if recording is None else text(recording),
        )


def recorded_of(given: Mapping[str, Any]) -> Recorded:
    with understood("what the server says of a recording"):
        first, last = (
            None if given[key] is None else datetime.fromisoformat(text(given[key]))
            for key in ("first_time", "last_time")
        )
        numbers = ("rows", "bytes", "first_seq", "next_seq", "lost", "failures")
        return Recorded(
            name=text(given["name"]),
            state=text(given["state"]),
            first_time=first,
            last_time=last,
            damage=tuple(map(text, given["damage"])),
            folder=text(given.get("folder", "")),
            **{key: whole(given[key]) for key in numbers},
        )


def entries_of(batches: Iterable[pa.RecordBatch]) -> list[Entry]:
    """The rows of a listing."""
    with understood("a listing of the server"):
        return [_entry(row, row["modified"]) for batch in batches for row in batch.to_pylist()]


def results_of(bodies: Iterable[bytes], location: str) -> list[Any]:
    """The JSON of an action's results."""
    return [value(body, "an action's result", location) for body in bodies if body]


def single(results: list[Any], action: str, location: str) -> dict[str, Any]:
    """The one object that an action gives."""
    if len(results) != 1 or not isinstance(results[0], dict):
        raise ProtocolError(f"{action} gave something else than one object", where=location)
    return results[0]


def entry_of(given: Mapping[str, Any]) -> Entry:
    with understood("what the server says of a file"):
        seconds = given.get("modified")
        return _entry(given, None if seconds is None else EPOCH + timedelta(seconds=seconds))


def _entry(given: Mapping[str, Any], modified: datetime | None) -> Entry:
    if not (modified is None or isinstance(modified, datetime)):
        raise TypeError("no time")
    return Entry(path=text(given["path"]), kind=text(given["kind"]), size=whole(given["size"]), modified=modified)


def digest_of(given: Mapping[str, Any]) -> Digest:
    with understood("a digest of the server"):
        return Digest(algorithm=text(given["algorithm"]), digest=text(given["digest"]))


def reset_kind(hard: bool) -> str:
    return "hard" if hard else "soft"
