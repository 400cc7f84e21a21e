"""What the answer to a `fleet.file` request is made of: one set of columns, and what became of each device. No I/O.

The columns are known from the request (`schema`, `record`, format `raw`), or from the first device that is read: its
own are asked of the others then, whose rows are held against them as against a `schema` of the request.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastflight.errors import DataError, FastFlightError, RequestError, Stopped
from fastflight.runtime.failure import error_json
from fastflight.service.requests import DeviceFile, FleetFile
from fastflight.service.source import Noted, Summary
from fastflight.sources.device_file import FileRows
from fastflight.tables import format_of, schema_from_names
from fastflight.tables.bare import empty

DEVICE = pa.field("device", pa.string(), nullable=False)
# Those that hold no types of their own.
TEXT_FORMATS = ("csv", "jsonl")
# Those whose columns the request says without one.
OWN_COLUMNS = ("packed", "raw")
# A failure inside the trailer: there may be one for each device.
MAX_FAILURE_BYTES = 1000
# Rows set aside that are told one by one, of all devices together; all are counted.
MAX_REJECTED_EXAMPLES = 20


class FleetRows:
    """The rows of the devices `names`. The devices may be read on threads and loops of their own."""

    def __init__(self, request: FleetFile, names: Sequence[str]) -> None:
        """`RequestError` for a request that no device could answer."""
        self.names = names
        self._request = request
        self._lock = threading.Lock()
        self._devices: dict[str, Mapping[str, Any]] = {}
        self._failed: dict[str, Mapping[str, Any]] = {}
        self._first_error: FastFlightError | None = None
        self._rows = dict.fromkeys(names, 0)
        self._examples: list[Mapping[str, Any]] = []
        self._columns = request.schema_
        # Without `device`, and with it.
        self._file_schema: pa.Schema | None = None
        self.schema = pa.schema([])
        if (schema := FileRows(self.asked(names[0])).schema) is not None:
            self.begin(schema)

    @property
    def is_known(self) -> bool:
        """Whether the columns are."""
        return self._file_schema is not None

    def until_known(self) -> Iterator[str]:
        """The devices to ask for the columns, one after another. Raises the first error if none could say."""
        for name in self.names:
            if self.is_known:
                return
            yield name
        if not self.is_known and self._first_error is not None:
            raise self._first_error

    @contextlib.contextmanager
    def failing(self, name: str) -> Iterator[None]:
        """Around the reading of a device. A failure is kept, unless it is to end the whole."""
        try:
            yield
        except Stopped:
            raise
        except FastFlightError as error:
            if self._request.on_error == "fail":
                raise
            with self._lock:
                told = json.loads(error_json(error, MAX_FAILURE_BYTES))
                self._failed[name] = {"device": name, "rows": self._rows[name], **told}
                self._first_error = self._first_error or error

    def asked(self, name: str) -> DeviceFile:
        """The request for one device's file."""
        same = self._request.model_dump(exclude={"devices", "ordered"}, by_alias=True)
        return DeviceFile(**{**same, "device": name, "schema": self._columns})

    def begin(self, schema: pa.Schema) -> None:
        """The first file has these columns: so must the others."""
        self.schema = with_device(schema)
        self._file_schema = schema
        self._columns = columns_asked(self._request, self.schema) or self._request.schema_

    def check(self, schema: pa.Schema) -> None:
        """`DataError` for a file with other columns than the first has."""
        if not schema.equals(self._file_schema):
            raise DataError(
                f"its columns are {_listed(schema)}, and not {_listed(self._file_schema)}",
                hint='Say which columns are meant with "schema" or "columns"',
            )

    def labelled(self, name: str, item: pa.RecordBatch | Noted) -> pa.RecordBatch | Noted:
        """A batch of a device as one of the answer."""
        batch = item.batch if isinstance(item, Noted) else item
        self._rows[name] += batch.num_rows
        label = pa.repeat(pa.scalar(name, DEVICE.type), batch.num_rows)
        labelled = pa.RecordBatch.from_arrays([label, *batch.columns], schema=self.schema)
        return Noted(labelled, {**item.note, "device": name}) if isinstance(item, Noted) else labelled

    def silence(self) -> pa.RecordBatch:
        """A batch without rows."""
        return empty(self.schema)

    def was_read(self, name: str, summary: Summary) -> None:
        """A device's file came to its end."""
        with self._lock:
            for row in summary.get("rejected_rows", ())[: MAX_REJECTED_EXAMPLES - len(self._examples)]:
                self._examples.append({"device": name, **row})
            told = {key: value for key, value in summary.items() if key not in ("rejected_rows", "rows")}
            self._devices[name] = {"device": name, "rows": self._rows[name], **told}

    def told(self, name: str) -> Noted:
        """What is said in the stream of a device that failed."""
        return Noted(self.silence(), {"failure": self._failed[name]})

    def has_failed(self, name: str) -> bool:
        """Whether it is known to have."""
        return name in self._failed

    def summary(self) -> Summary:
        """What was read of each device, and why not of the others."""
        devices = [self._devices[name] for name in self.names if name in self._devices]
        return {
            "bytes": sum(device.get("bytes", 0) for device in devices),
            "rejected": sum(device.get("rejected", 0) for device in devices),
            "rejected_rows": self._examples,
            "devices": devices,
            "failed": [self._failed[name] for name in self.names if name in self._failed],
        }


def with_device(schema: pa.Schema) -> pa.Schema:
    """The columns of a file after the leading one; `DataError` where the file has one of that name."""
    if DEVICE.name in schema.names:
        raise DataError(
            "the file has a column named 'device' of its own", hint='Name the other columns in "columns" or "schema"'
        )
    return pa.schema([DEVICE, *schema])


def columns_asked(request: FleetFile, schema: pa.Schema | None) -> dict[str, str] | None:
    """The `schema` by which `request` gives the columns of `schema`, `device` among them; empty where it needs none.

    None where no request can say: the columns are not known, or only the file says them.
    """
    if request.schema_ is not None or (request.format or format_of(request.path)) in OWN_COLUMNS:
        return request.schema_ or {}
    if schema is None or (request.format or format_of(request.path)) not in TEXT_FORMATS:
        return None
    names = {field.name: str(field.type) for field in schema if field.name != DEVICE.name}
    try:
        said = schema_from_names(names)
    except RequestError:
        return None
    return names if pa.schema([DEVICE, *said]).equals(schema) else None


def _listed(schema: pa.Schema | None) -> str:
    return "none" if schema is None else ", ".join(f"{field.name}: {field.type}" for field in schema)[:300] or "none"
