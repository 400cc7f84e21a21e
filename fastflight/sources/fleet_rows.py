"""The state of an answer to a `fleet.file` request: its columns, and the outcome of each device. No I/O.

The columns follow from the request (`schema`, `kinds`, `record`, format `raw`). If they do not, the values in the files
of all devices decide (`of_all`): `request_for_kinds` asks each device for what its file has, `add_kinds` takes that,
and `join` makes the columns. In formats whose files hold the types, and with `infer` `sample`, the columns are those of
the first device that can be read. The requests to the other devices then carry the columns.
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
from fastflight.service.requests import FILE_DESCRIPTION, FILE_KINDS, DeviceFile, FleetFile
from fastflight.service.source import Noted, Summary
from fastflight.sources.file_rows import WholeRows, rows_of
from fastflight.tables import format_of, schema_from_names
from fastflight.tables.bare import empty
from fastflight.tables.schemas import project
from fastflight.tables.shapes import Shape, columns_of, joined, shapes_from_json
from fastflight.tables.summary import combined

DEVICE = pa.field("device", pa.string(), nullable=False)
# Formats whose files hold no column types.
TEXT_FORMATS = ("csv", "jsonl")
# Formats whose columns follow from the request, even without a `schema`.
OWN_COLUMNS = ("packed", "raw")
# The size of one failure in the trailer, which may hold one for each device.
MAX_FAILURE_BYTES = 1000


class FleetRows:
    """Collects the rows and the outcome of the devices `names`, each of which may be read on its own thread or loop."""

    def __init__(self, request: FleetFile, names: Sequence[str]) -> None:
        """`names` are the devices that `request` reads; there is at least one.

        Raises `RequestError` for a request that would be refused for every device.
        """
        self.names = names
        self._request = request
        self._lock = threading.Lock()
        self._devices: dict[str, Mapping[str, Any]] = {}
        # Why devices could not be read, or not to the end.
        self._errors: dict[str, FastFlightError] = {}
        self._rows = dict.fromkeys(names, 0)
        self._columns = request.schema_
        self._kinds = request.kinds
        # What the files have that were read for their kinds, and what their boards said of them.
        self._found: dict[str, Mapping[str, Any]] = {}
        self._described: dict[str, dict[str, Any]] = {}
        # The columns of the files, without `device`; None until they are known.
        self._file_schema: pa.Schema | None = None
        # The columns of the answer, with `device`.
        self.schema = pa.schema([])
        decoder = rows_of(self.request_for(names[0]))
        # Whether the files of all devices have to be read before the columns are known. One file can be read at once.
        self.of_all = isinstance(decoder, WholeRows) and request.kinds is None and len(names) > 1
        if isinstance(decoder, WholeRows) and request.kinds is not None:
            self.begin(project(columns_of(shapes_from_json(request.kinds)), request.columns))
        elif decoder.schema is not None:
            self.begin(decoder.schema)

    @property
    def schema_is_known(self) -> bool:
        """Whether the columns of the files are known."""
        return self._file_schema is not None

    def until_schema_known(self) -> Iterator[str]:
        """Yield the devices to ask for the columns, until `begin` is called. Raises the first error if all fail."""
        for name in self.names:
            if self.schema_is_known:
                return
            yield name
        if not self.schema_is_known:
            self._raise_first_error()

    def _raise_first_error(self) -> None:
        """Raise the error of the first device, in the order of the names, that could not be read."""
        for name in self.names:
            if name in self._errors:
                raise self._errors[name]

    @contextlib.contextmanager
    def recording_failure(self, name: str) -> Iterator[None]:
        """Record an error that ends the reading of a device, and suppress it, unless it must end the whole answer."""
        try:
            yield
        except Stopped:
            raise
        except FastFlightError as error:
            if self._request.on_error == "fail":
                raise
            self._errors[name] = error

    def request_for(self, name: str) -> DeviceFile:
        """Return the request for the file of one device."""
        common = self._request.model_dump(exclude={"devices", "ordered"}, by_alias=True)
        request = DeviceFile(**{**common, "device": name, "schema": self._columns, "kinds": self._kinds})
        return request.described(self._described.get(name))

    def request_for_kinds(self, name: str) -> DeviceFile:
        """Return the request for what the file of one device has."""
        return self.request_for(name).model_copy(update={"kinds": {}, "columns": None, "describe": "digest"})

    def add_kinds(self, name: str, schema: pa.Schema) -> None:
        """Take what the file of a device has, from the schema of the answer to `request_for_kinds`."""
        with_device(schema if self._request.columns is None else pa.schema([]))
        metadata = schema.metadata or {}
        with self._lock:
            self._found[name] = json.loads(metadata.get(FILE_KINDS, b"{}"))
            self._described[name] = json.loads(metadata.get(FILE_DESCRIPTION, b"{}"))

    def join(self) -> None:
        """Set the columns that hold the values of all files. Raises the first error if no file could be read."""
        if not self._found:
            self._raise_first_error()
        shapes: dict[str, Shape] = {}
        for name in self.names:
            shapes = joined(shapes, shapes_from_json(self._found.get(name, {})))
        self._kinds = {name: shape.as_json() for name, shape in shapes.items()}
        self.begin(project(columns_of(shapes), self._request.columns))

    def described_schema(self) -> pa.Schema:
        """Return the columns of the answer, with what `requested_columns` needs of the files in the metadata."""
        if self._kinds is None or self._request.kinds is not None:
            return self.schema
        return self.schema.with_metadata({FILE_KINDS: json.dumps(self._kinds).encode()})

    def begin(self, schema: pa.Schema) -> None:
        """Set the columns of the first file, which all other files must have, too."""
        self.schema = with_device(schema)
        self._file_schema = schema
        if self._kinds is None:
            self._columns = requested_schema(self._request, self.schema) or self._request.schema_

    def check(self, schema: pa.Schema) -> None:
        """Raise `DataError` if a file has other columns than the answer: than the first file, or than it had before."""
        if not schema.equals(self._file_schema):
            raise DataError(
                f"its columns are {_format_columns(schema)}, and not {_format_columns(self._file_schema)}",
                hint='Say which columns are meant with "schema" or "columns"',
            )

    def labelled(self, name: str, item: pa.RecordBatch | Noted) -> pa.RecordBatch | Noted:
        """Return a batch of a device with the column `device` in front; count its rows."""
        batch = item.batch if isinstance(item, Noted) else item
        self._rows[name] += batch.num_rows
        label = pa.repeat(pa.scalar(name, DEVICE.type), batch.num_rows)
        labelled = pa.RecordBatch.from_arrays([label, *batch.columns], schema=self.schema)
        return Noted(labelled, {**item.note, "device": name}) if isinstance(item, Noted) else labelled

    def end(self, name: str, summary: Summary) -> None:
        """Record the summary of a device whose file was read to its end."""
        with self._lock:
            examples = [{"device": name, **row} for row in summary.get("rejected_rows", ())]
            self._devices[name] = {**summary, "device": name, "rows": self._rows[name], "rejected_rows": examples}

    def failure_note(self, name: str) -> Noted:
        """Return an empty batch whose note reports the failure of a device."""
        return Noted(empty(self.schema), {"failure": self._failure(name)})

    def _failure(self, name: str) -> Mapping[str, Any]:
        error = json.loads(error_json(self._errors[name], MAX_FAILURE_BYTES))
        return {"device": name, "rows": self._rows[name], **error}

    def has_failed(self, name: str) -> bool:
        """Return whether a failure of this device was recorded."""
        return name in self._errors

    def summary(self) -> Summary:
        """Return the totals, the summaries of the devices that were read, and the failures of the others."""
        read = [self._devices[name] for name in self.names if name in self._devices]
        devices = [{key: value for key, value in each.items() if key != "rejected_rows"} for each in read]
        return {
            "bytes": sum(device.get("bytes", 0) for device in devices),
            **{"rejected": 0, "rejected_rows": []},
            **combined(read),
            "devices": devices,
            "failed": [self._failure(name) for name in self.names if name in self._errors],
        }


def with_device(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the column `device` in front. `DataError` if the file has a column of that name."""
    if DEVICE.name in schema.names:
        raise DataError(
            "the file has a column named 'device' of its own", hint='Name the other columns in "columns" or "schema"'
        )
    return pa.schema([DEVICE, *schema])


def requested_columns(request: FleetFile, schema: pa.Schema | None) -> dict[str, Any] | None:
    """Return the fields of a request that is answered with the columns of `schema`, whichever devices it names.

    `schema` is that of `FleetRows.described_schema`. The result is None if no request can express the columns.
    """
    if request.kinds is not None:
        return {}
    if schema is not None and FILE_KINDS in (schema.metadata or {}):
        return {"kinds": json.loads(schema.metadata[FILE_KINDS])}
    columns = requested_schema(request, schema)
    return None if columns is None else {"schema_": columns or None}


def requested_schema(request: FleetFile, schema: pa.Schema | None) -> dict[str, str] | None:
    """Return the value for the key `schema` with which `request` is answered with the columns of `schema`.

    `schema` includes `device`; the result does not. It is empty if the columns follow from the other keys. It is None
    if the columns are not known, or if no value of the key can express them.
    """
    if request.schema_ is not None or (request.format or format_of(request.path)) in OWN_COLUMNS:
        return request.schema_ or {}
    if schema is None or (request.format or format_of(request.path)) not in TEXT_FORMATS:
        return None
    names = {field.name: str(field.type) for field in schema if field.name != DEVICE.name}
    try:
        requested = schema_from_names(names)
    except RequestError:
        return None
    return names if pa.schema([DEVICE, *requested]).equals(schema) else None


def _format_columns(schema: pa.Schema | None) -> str:
    return "none" if schema is None else ", ".join(f"{field.name}: {field.type}" for field in schema)[:300] or "none"
