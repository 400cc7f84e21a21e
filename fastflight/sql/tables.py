"""The tables of SQL: files of devices, recordings, and tables about the server itself.

A table is resolved for an identity, which must have the right to read the file or recording. Its schema is known then,
and it can be scanned any number of times. A file is fetched once for a query, through the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority, Listing
from fastflight.access.identity import Identity
from fastflight.errors import FastFlightError, Stopped, UnknownName, nearest
from fastflight.log import StoredRows
from fastflight.service import Catalog
from fastflight.service.requests import DeviceFile, Recording, Request
from fastflight.service.resolve import plain
from fastflight.service.source import Reading
from fastflight.sources import DeviceFiles
from fastflight.sources.file_cache import Content
from fastflight.sources.file_rows import summary_of
from fastflight.sources.recorded_rows import WAITED
from fastflight.sources.recording import Readable, range_of
from fastflight.sql.names import CATALOG, DATABASES, OWN_SCHEMA, RECORDING, like, shown, table_of_path
from fastflight.sql.pushdown import EPOCH, MICROSECOND, Narrowing
from fastflight.tables.summary import combined

TIME = pa.timestamp("us", "UTC")
DATA_TYPE, OWN_TYPE = "TABLE", "SYSTEM TABLE"
# The columns of a recording, made from those of its Parquet files, as `sources.recorded_rows.Replay` makes them.
STORED_COLUMNS = {
    "seq": '"fastflight.seq"',
    "time": f"case when cut is null or not ends_with(cut, '{WAITED}') then time end",
    "direction": "direction",
    "data": "data",
}
OWN_SCHEMAS = {
    "devices": pa.schema(
        [("name", pa.string()), ("url", pa.string()), ("open", pa.bool_()), ("holder", pa.string())]
        + [("recording", pa.string()), ("trouble", pa.string()), ("last_data", pa.timestamp("ms", "UTC"))]
    ),
    "files": pa.schema([("device", pa.string()), ("path", pa.string()), ("bytes", pa.int64())]),
    "recordings": pa.schema(
        [("name", pa.string()), ("state", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
        + [("first_seq", pa.uint64()), ("next_seq", pa.uint64()), ("first_time", TIME), ("last_time", TIME)]
        + [("lost", pa.int64()), ("failures", pa.int64())]
    ),
    "tables": pa.schema([(name, pa.string()) for name in ("catalog", "schema", "name", "type", "sql_name")]),
}


@dataclass(frozen=True, slots=True)
class TableName:
    """One table in a listing. `sql_name` is how people write it; `schema` is that of its rows, if it was asked for.

    `trouble` says why there is no schema.
    """

    catalog: str
    device: str
    name: str
    type: str
    schema: pa.Schema | None = None
    trouble: str = ""

    @property
    def sql_name(self) -> str:
        catalog = (self.catalog,) if self.device.lower() in DATABASES else ()
        return shown((*catalog, self.device, self.name))


class Table(Protocol):
    """A table of one query. `schema` has the columns of all rows."""

    schema: pa.Schema

    def stored(self, narrowing: Narrowing) -> StoredRows | None:
        """Return the first rows as Parquet files, if there are such files. A scan must leave these rows out."""

    def scan(self, narrowing: Narrowing) -> Reading: ...

    def read(self) -> Mapping[str, Any]:
        """Return what was read so far, for `explain analyze`."""

    def close(self) -> None: ...


class FileTable:
    """A file of a device. All scans have the same content."""

    def __init__(self, files: DeviceFiles, request: DeviceFile, content: Content) -> None:
        self._files = files
        self._request = request
        self._content = content
        self._bytes = 0
        reading = files.rows(request, content)
        with closing(reading.lots):  # type: ignore[type-var]
            # As in the trailer of a `device.file` request: rejected rows, cells that became null, notes. Only a file
            # that is read as a whole has it before its rows; that of another is known after a scan.
            self._summary = summary_of(reading.schema)
            self._scanned: Callable[[], Mapping[str, Any]] = dict
            self.schema = plain(reading.schema).remove_metadata()

    def stored(self, narrowing: Narrowing) -> StoredRows | None:
        return None

    def scan(self, narrowing: Narrowing) -> Reading:
        columns = None if narrowing.columns is None else tuple(narrowing.columns)
        self._bytes += self._content.size
        reading = self._files.rows(self._request.model_copy(update={"columns": columns}), self._content)
        self._scanned = reading.summary
        return reading

    def read(self) -> Mapping[str, Any]:
        summary = self._summary or combined([self._scanned()])
        return {"from": self._content.origin, "bytes": self._bytes, **summary}

    def close(self) -> None:
        self._content.close()


class RecordingTable:
    """The recorded traffic of a device, which is in `log`."""

    def __init__(self, catalog: Catalog, request: Recording, log: Readable) -> None:
        self._log = log
        self._stored: StoredRows | None = None
        self._source = catalog.source_of(request)
        self._request = request
        self._readings: list[Reading] = []
        schema = self._source.describe(request).schema
        assert schema is not None
        self.schema = plain(schema).remove_metadata()

    def stored(self, narrowing: Narrowing) -> StoredRows | None:
        if narrowing.is_empty:
            return None
        request = self._request.model_copy(update=_keys(narrowing))
        self._stored = self._log.stored(range_of(request), request.limit_rows)
        return self._stored

    def scan(self, narrowing: Narrowing) -> Reading:
        assert self._source.read is not None
        reading = self._source.read(self._request.model_copy(update=_keys(narrowing)))
        self._readings.append(reading)
        return reading

    def read(self) -> Mapping[str, Any]:
        stored = [reading.summary()["stored"] for reading in self._readings]
        files = [] if self._stored is None else self._stored.files
        return {
            "parts": sum(each["parts"] for each in stored) + len(files),
            "bytes": sum(each["bytes"] for each in stored) + sum(each.read_bytes for each in files),
        }

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()


class OwnTable:
    """A table about the server."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.schema = rows.schema

    def stored(self, narrowing: Narrowing) -> StoredRows | None:
        return None

    def scan(self, narrowing: Narrowing) -> Reading:
        rows = self._rows if narrowing.columns is None else self._rows.select(narrowing.columns)
        return Reading(rows.schema, first=rows.to_batches())

    def read(self) -> Mapping[str, Any]:
        return {"rows": self._rows.num_rows}

    def close(self) -> None: ...


def _keys(narrowing: Narrowing) -> Mapping[str, Any]:
    """Return the keys of a `recording` request for a narrowing."""
    return {
        "columns": None if narrowing.columns is None else tuple(narrowing.columns),
        "from_seq": narrowing.from_seq,
        "to_seq": narrowing.to_seq,
        "from_time": _time(narrowing.from_time),
        "to_time": _time(None if narrowing.to_time is None else narrowing.to_time + 1),
        "limit_rows": narrowing.limit,
    }


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + microseconds * MICROSECOND


class Tables:
    """The tables of one server. Each method shows only what `identity` may read."""

    def __init__(
        self,
        catalog: Catalog,
        actions: Actions,
        authority: Authority,
        files: DeviceFiles,
        log_of: Callable[[str], Readable],
    ) -> None:
        self._log_of = log_of
        self._catalog = catalog
        self._actions = actions
        self._authority = authority
        self._files = files

    def open(self, identity: Identity, path: list[str], check: Callable[[], None]) -> Table:
        """Return the table with this catalog, schema and name. Raises as reading its file or recording does.

        `check` is called now and then while a board sends a file. What it raises ends that.
        """
        _, schema, name = path
        if schema.lower() == OWN_SCHEMA and name.lower() in OWN_SCHEMAS:
            return OwnTable(self._own(identity, name.lower()))
        if name.lower() == RECORDING:
            recording = Recording(name=schema)
            recording = self._authority.authorize(identity, recording, "read")
            return RecordingTable(self._catalog, recording, self._log_of(recording.name))
        if schema.lower() == OWN_SCHEMA and OWN_SCHEMA not in self._devices(identity):
            raise UnknownName("no such table", where=shown(path), hint=nearest(name, OWN_SCHEMAS))
        request = DeviceFile(device=schema, path=f"/{name.lstrip('/')}")
        request = self._authority.authorize(identity, request, "read")
        fetching = self._files.fetch(request)
        try:
            while True:
                next(fetching)
                check()
        except StopIteration as fetched:
            content: Content = fetched.value
        finally:
            fetching.close()
        try:
            return FileTable(self._files, request, content)
        except BaseException:
            content.close()
            raise

    def shows_all_recordings(self, identity: Identity) -> bool:
        """Whether all recordings, also those to come, are tables."""
        return Listing(self._authority, identity).takes_all(Recording)

    def schemas(self, identity: Identity, schema: str | None = None) -> list[str]:
        """Return the names of the schemas that match a pattern of SQL's `like`."""
        names = dict.fromkeys([OWN_SCHEMA, *self._devices(identity), *self._recorded(identity)])
        return [name for name in names if _like(name, schema)]

    def listing(
        self,
        identity: Identity,
        schema: str | None = None,
        table: str | None = None,
        *,
        with_schemas: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[TableName]:
        """Yield the tables whose schema and name match these patterns of SQL's `like`; None matches all.

        With `with_schemas`, each file is read as far as its columns need it. `check` is called now and then. What it
        raises ends the listing.
        """
        listing = Listing(self._authority, identity)
        if _like(OWN_SCHEMA, schema):
            for own, rows in OWN_SCHEMAS.items():
                if _like(own, table):
                    yield TableName(CATALOG, OWN_SCHEMA, own, OWN_TYPE, rows)
        for kind in (DeviceFile, Recording):
            source = self._catalog.source(kind.type)
            for request, _ in source.requests(partial(_takes, listing, kind, schema)):
                device, name = _name_of(request)
                if not (_like(device, schema) and _like(name, table) and listing.has(request)):
                    continue
                check()
                found = TableName(CATALOG, device, name, DATA_TYPE)
                yield self._with_schema(identity, found, check) if with_schemas else found

    def _with_schema(self, identity: Identity, name: TableName, check: Callable[[], None]) -> TableName:
        try:
            with closing(self.open(identity, [name.catalog, name.device, name.name], check)) as table:
                return replace(name, schema=table.schema)
        except Stopped:
            raise
        except FastFlightError as error:
            return replace(name, trouble=str(error))

    def _own(self, identity: Identity, name: str) -> pa.Table:
        schema = OWN_SCHEMAS[name]
        rows: Iterable[Mapping[str, Any]]
        if name == "files":
            files = self._catalog.source(DeviceFile.type)
            listing = Listing(self._authority, identity)
            assert files.requests is not None
            found = files.requests(lambda device: listing.takes(DeviceFile, device))
            rows = [{"device": each.device, "path": each.path, "bytes": known.bytes} for each, known in found]
        elif name == "tables":
            rows = [
                {"catalog": each.catalog, "schema": each.device, "name": each.name, "type": each.type}
                | {"sql_name": each.sql_name}
                for each in self.listing(identity)
            ]
        else:
            rows = [_row(schema, each) for each in self._act(name, identity)]
        return pa.Table.from_pylist(list(rows), schema)

    def _devices(self, identity: Identity) -> list[str]:
        listing = Listing(self._authority, identity)
        return [each["name"] for each in self._act("devices", identity) if listing.takes(DeviceFile, each["name"])]

    def _recorded(self, identity: Identity) -> list[str]:
        listing = Listing(self._authority, identity)
        return [each["name"] for each in self._act("recordings", identity) if listing.takes(Recording, each["name"])]

    def _act(self, action: str, identity: Identity) -> list[Mapping[str, Any]]:
        return [json.loads(result) for result in self._actions.call(action, b"", identity).results()]


def _takes(listing: Listing, kind: type[Request], pattern: str | None, name: str) -> bool:
    return _like(name, pattern) and listing.takes(kind, name)


def _name_of(request: Request) -> tuple[str, str]:
    if isinstance(request, Recording):
        return request.name, RECORDING
    assert isinstance(request, DeviceFile)
    return request.device, table_of_path(request.path)


def _row(schema: pa.Schema, values: Mapping[str, Any]) -> Mapping[str, Any]:
    row: dict[str, Any] = {name: values.get(name) for name in schema.names}
    for field in schema:
        if field.type == TIME and row[field.name] is not None:
            row[field.name] = datetime.fromisoformat(row[field.name])
    return row


def _like(name: str, pattern: str | None) -> bool:
    """As `names.like`; None matches every name."""
    return pattern is None or like(name, pattern)
