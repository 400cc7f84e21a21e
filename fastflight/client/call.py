"""What the sync and the async client ask for, written once: requests and actions as bytes, answers as data classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from fastflight.errors import ProtocolError
from fastflight.service.requests import Request
from fastflight.service.wire import validate

R = TypeVar("R", bound=Request)

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
# Seconds that a call without a stream may take: a hash of a large file on a small board is the slowest of them.
DEFAULT_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the server: its name, its URL, and whatever else the server says of it."""

    name: str
    url: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder on a device. `size` and `modified` are None where the board does not tell."""

    path: str
    kind: str
    size: int | None
    modified: datetime | None


@dataclass(frozen=True, slots=True)
class Written:
    """What is on the device now: rows, the file's bytes, and their sha256 (empty where the board cannot tell)."""

    rows: int
    bytes: int
    sha256: str


def build(request: type[R], **values: Any) -> R:
    """A request of these values, those that are None left to their defaults. `RequestError` names what is wrong."""
    return validate(request, {key: _as_json(value) for key, value in values.items() if value is not None})


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def device_of(given: Mapping[str, Any]) -> Device:
    rest = {key: value for key, value in given.items() if key not in ("name", "url")}
    return Device(name=str(given["name"]), url=str(given.get("url", "")), details=rest)


def entries_of(batches: Iterable[pa.RecordBatch]) -> list[Entry]:
    """The rows of a listing."""
    return [
        Entry(path=row["path"], kind=row["kind"], size=row["size"], modified=row["modified"])
        for batch in batches
        for row in batch.to_pylist()
    ]


def results_of(bodies: Iterable[bytes], location: str) -> list[Any]:
    """The JSON of an action's results."""
    try:
        return [json.loads(body) for body in bodies if body]
    except ValueError as error:
        raise ProtocolError("an action's result is not JSON", where=location) from error


def single(results: list[Any], action: str, location: str) -> dict[str, Any]:
    """The one object that an action gives."""
    if len(results) != 1 or not isinstance(results[0], dict):
        raise ProtocolError(f"{action} gave something else than one object", where=location)
    return results[0]


def entry_of(given: Mapping[str, Any]) -> Entry:
    modified = given.get("modified")
    return Entry(
        path=given["path"],
        kind=given["kind"],
        size=given.get("size"),
        modified=datetime.fromisoformat(modified) if isinstance(modified, str) else None,
    )


def sha256_of(given: Mapping[str, Any]) -> str:
    return str(given["sha256"])
