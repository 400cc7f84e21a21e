"""The tables of SQL: files of devices, recordings, and tables about the server itself.

A table is opened for an identity, which must have the right to read the file or recording: its rows become files in
the folder of a worker. A file of a board is fetched once for a query, through the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority, Listing
from fastflight.access.identity import Identity
from fastflight.errors import FastFlightError, Stopped, UnknownName, nearest
from fastflight.gap import Gap, Why
from fastflight.log import Range
from fastflight.service import Catalog
from fastflight.service.requests import DeviceFile, DeviceListing, Recording, Request
from fastflight.service.resolve import plain
from fastflight.service.source import Noted, Reading
from fastflight.sources import DeviceFiles
from fastflight.sources.file_rows import summary_of
from fastflight.sources.recorded_rows import WAITED
from fastflight.sources.recording import Readable
from fastflight.sources.row_layout import OWN_COLUMNS
from fastflight.sources.typed_rows import PlacedPart, TypedRows
from fastflight.sql.folder import WorkerFolder
from fastflight.sql.names import (
    CATALOG,
    DATABASES,
    GAPS,
    OWN_SCHEMA,
    RECORDING,
    ROWS,
    like,
    quoted,
    shown,
    table_of_path,
)
from fastflight.tables.summary import LISTED_NAMES, combined

TIME = pa.timestamp("us", "UTC")
# The tables about the server that have files of devices.
LISTED = ("files", "tables")
# Devices that a note names.
SHOWN_NAMES = 3
ASK_AGAIN = "ask again later, or list one with `fastflight ls DEVICE`, which can interrupt its program"
# Files of recordings whose footers need not be read again.
MAX_KNOWN_FILES = 4096
DATA_TYPE, OWN_TYPE = "TABLE", "SYSTEM TABLE"
OWN_SCHEMAS = {
    "crashes": pa.schema(
        [("device", pa.string()), ("count", pa.int64()), ("first_time", TIME), ("last_time", TIME)]
        + [("error", pa.string()), ("place", pa.string()), ("seq", pa.uint64()), ("text", pa.string())]
    ),
    "devices": pa.schema(
        [("name", pa.string()), ("url", pa.string()), ("open", pa.bool_()), ("holder", pa.string())]
        + [("recording", pa.string()), ("trouble", pa.string()), ("last_data", pa.timestamp("ms", "UTC"))]
        + [("kind", pa.string())]
    ),
    "files": pa.schema([("device", pa.string()), ("path", pa.string()), ("bytes", pa.int64())]),
    "recordings": pa.schema(
        [("name", pa.string()), ("state", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
        + [("first_seq", pa.uint64()), ("next_seq", pa.uint64()), ("first_time", TIME), ("last_time", TIME)]
        + [("lost", pa.int64()), ("gaps", pa.int64()), ("failures", pa.int64())]
    ),
    "tables": pa.schema([(name, pa.string()) for name in ("catalog", "schema", "name", "type", "sql_name")]),
}
GAPS_SCHEMA = pa.schema(
    [("from_time", TIME), ("to_time", TIME), ("why", pa.string()), ("first", pa.int64()), ("last", pa.int64())]
    + [("rows", pa.int64()), ("bytes", pa.int64())]
)


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


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table as files in the folder of a worker, and what `explain` and the summary say of it.

    Its rows are those of the Parquet files, as the query beside each list of them selects them, and then those of the
    Arrow stream, which has the columns of the table.
    """

    arrow: str
    facts: Mapping[str, Any]
    parquet: Sequence[tuple[list[str], str]] = ()


class Tables:
    """The tables of one server. Each method shows only what `identity` may read."""

    def __init__(
        self,
        catalog: Catalog,
        actions: Actions,
        authority: Authority,
        files: DeviceFiles,
        log_of: Callable[[str], Readable],
        typed: TypedRows,
    ) -> None:
        self._log_of = log_of
        self._typed = typed
        self._catalog = catalog
        self._actions = actions
        self._authority = authority
        self._files = files

    def open(
        self, identity: Identity, path: Sequence[str], folder: WorkerFolder, check: Callable[[], None]
    ) -> TableFiles:
        """Put the table with this catalog, schema and name into `folder`. Raises as reading its rows does.

        `check` is called now and then. What it raises ends that.
        """
        _, schema, name = path
        if schema.lower() == OWN_SCHEMA and name.lower() in OWN_SCHEMAS:
            own = self._own(identity, name.lower())
            arrow, rows = folder.write(own.schema, own.to_batches())
            return TableFiles(arrow, {"rows": rows} | (self.unlisted(identity) if name.lower() in LISTED else {}))
        request = self._authority.authorize(identity, self._request(identity, path), "read")
        if isinstance(request, Recording):
            if name.lower() == GAPS:
                return self._gaps(request, folder, check)
            return (self._recording if request.as_ is None else self._rows)(request, folder, check)
        with closing(self._files.fetch(request, check)) as content:
            reading = self._files.rows(request, content)
            arrow, rows = _write(reading, folder, check)
            # As in the trailer of a `device.file` request: rejected rows, cells that became null, notes.
            facts = summary_of(reading.schema) or combined([reading.summary()])
            return TableFiles(arrow, {"from": content.origin, "rows": rows, "bytes": content.spool.size, **facts})

    def _request(self, identity: Identity, path: Sequence[str]) -> DeviceFile | Recording:
        """Return the request for the rows of a file or a recording."""
        _, schema, name = path
        if name.lower() in (RECORDING, ROWS, GAPS):
            return Recording(name=schema, as_="rows" if name.lower() == ROWS else None)
        if schema.lower() == OWN_SCHEMA and OWN_SCHEMA not in self._devices(identity):
            raise UnknownName("no such table", where=shown(path), hint=nearest(name, OWN_SCHEMAS))
        return DeviceFile(device=schema, path=f"/{name.lstrip('/')}")

    def _recording(self, request: Recording, folder: WorkerFolder, check: Callable[[], None]) -> TableFiles:
        """Put the Parquet files of a recording into the folder, and write its newest rows there."""
        # In a cluster, the rows of a device that several servers have recorded are in no files.
        with closing(self._log_of(request.name).stored()) as stored:
            sizes = [file.stat().st_size for file in stored.files]
            sizes += [extent.bytes for extent in self._log_of(request.name).extents(Range(from_seq=stored.end))]
            query = 'select "fastflight.seq" as seq, {}, direction, data where "fastflight.seq" between {} and {}'
            parquet = [
                ([folder.link(file) for file in files], query.format(time, stored.first, stored.end - 1))
                for time, files in groupby(stored.files, _time_column)
            ]
        source = self._catalog.source_of(request)
        assert source.read is not None
        reading = source.read(request.model_copy(update={"from_seq": stored.end}))
        arrow, _ = _write(reading, folder, check)
        newest = reading.summary()
        counts = {"gaps": stored.gaps + newest["gaps"], "lost": stored.lost + newest["lost"]}
        parts = {"parts": len(sizes), "bytes": sum(sizes)}
        return TableFiles(arrow, parts | {key: count for key, count in counts.items() if count}, parquet)

    def _gaps(self, request: Recording, folder: WorkerFolder, check: Callable[[], None]) -> TableFiles:
        """Put what is missing from a recording into the folder. All of it is read, because only that finds damage."""
        gaps = []
        with closing(self._log_of(request.name).read(Range(from_seq=0))) as items:
            for item in items:
                check()
                if isinstance(item, Gap) and item.why != Why.UNUSED:
                    gaps.append(item)
        rows = [{name: getattr(gap, name) for name in GAPS_SCHEMA.names} for gap in gaps]
        arrow, count = folder.write(GAPS_SCHEMA, pa.Table.from_pylist(rows, GAPS_SCHEMA).to_batches())
        return TableFiles(arrow, {"rows": count})

    def _rows(self, request: Recording, folder: WorkerFolder, check: Callable[[], None]) -> TableFiles:
        """Put the typed rows of a recording into the folder: links to the files of the older ones, and the others."""
        with self._typed.open(request.name, check) as table:
            parquet = [
                ([folder.link(placed.part.file) for placed in parts], select)
                for select, parts in groupby(table.parts, partial(_select_typed, table.schema))
            ]
            arrow, _ = folder.write(table.schema, table.batches())
            counts = {"gaps": table.gaps, "lost": table.lost, **combined(table.summaries())}
        return TableFiles(
            arrow, {"parts": len(table.parts)} | {key: count for key, count in counts.items() if count}, parquet
        )

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
            found = self._catalog.source(kind.type).requests(partial(_takes, listing, kind, schema))
            for device, name, request in (each for whole, _ in found for each in _tables_of(whole)):
                if _like(name, table) and listing.has(request):
                    check()
                    if name != ROWS or self._typed.has_table(device):
                        named = TableName(CATALOG, device, name, DATA_TYPE)
                        yield self._with_schema(named, request) if with_schemas else named

    def unlisted(self, identity: Identity) -> dict[str, list[str]]:
        """Return the `notes` of a summary: the devices whose files the last listing lacks. Empty if there are none."""
        listing = Listing(self._authority, identity)
        found = self._catalog.source(DeviceListing.type).requests(lambda device: listing.takes(DeviceFile, device))
        devices: dict[str, list[str]] = {}
        for request, known in found:
            note = known.note or {}
            if why := note.get("unlisted") or note.get("trouble"):
                age = note.get("listed_seconds_ago")
                files = "not listed" if age is None else f"as listed {age:.0f} s ago"
                devices.setdefault(f"{files} ({why})", []).append(request.device)
        notes = [f"the files of {_few(names)} are {said}; {ASK_AGAIN}" for said, names in devices.items()]
        return {"notes": notes[:LISTED_NAMES]} if notes else {}

    def _with_schema(self, name: TableName, request: Request) -> TableName:
        if isinstance(request, Recording) and name.name == GAPS:
            return replace(name, schema=GAPS_SCHEMA)
        describe = self._catalog.source_of(request).describe
        assert describe is not None
        try:
            schema = describe(request).schema
            return replace(name, schema=None if schema is None else plain(schema).remove_metadata())
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


@lru_cache(MAX_KNOWN_FILES)
def _time_column(file: Path) -> str:
    """Return how the time of a row is read from a Parquet file, as `sources.recorded_rows.RecordedChunks` gives it.

    DuckDB skips what is outside of a range of times only for a plain column: a file without any cut has one.
    """
    footer = pq.read_metadata(file)
    cut = footer.schema.names.index("cut")
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if all((known := each.column(cut).statistics) and known.null_count == each.num_rows for each in groups):
        return "time"
    return f"case when cut is null or not ends_with(cut, '{WAITED}') then time end as time"


def _write(reading: Reading, folder: WorkerFolder, check: Callable[[], None]) -> tuple[str, int]:
    """Write all rows of a reading into a folder. Return the name of the file, and their number."""
    schema = plain(reading.schema).remove_metadata()

    def batches() -> Iterator[pa.RecordBatch]:
        for ready in reading:
            check()
            yield from ((each.batch if isinstance(each, Noted) else each).cast(schema) for each in ready)

    with closing(reading):
        return folder.write(schema, batches())


def _select_typed(whole: pa.Schema, placed: PlacedPart) -> str:
    """Return a query for a file's rows with all columns of the table. DuckDB casts narrower columns."""
    held = placed.part.schema.names
    columns = (name if name in OWN_COLUMNS else quoted(name) for name in whole.names)
    chosen = [each if name in held else f"null as {each}" for name, each in zip(whole.names, columns, strict=True)]
    return f"select {', '.join(chosen)} where seq >= {placed.low}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _takes(listing: Listing, kind: type[Request], pattern: str | None, name: str) -> bool:
    return _like(name, pattern) and listing.takes(kind, name)


def _tables_of(request: Request) -> Iterator[tuple[str, str, Request]]:
    """Yield the tables of a file or a recording: the device, the name, and the request for the rows."""
    if isinstance(request, Recording):
        yield request.name, RECORDING, request
        yield request.name, GAPS, request
        yield request.name, ROWS, request.model_copy(update={"as_": "rows"})
    else:
        assert isinstance(request, DeviceFile)
        yield request.device, table_of_path(request.path), request


def _row(schema: pa.Schema, values: Mapping[str, Any]) -> Mapping[str, Any]:
    row: dict[str, Any] = {name: values.get(name) for name in schema.names}
    for field in schema:
        if field.type == TIME and row[field.name] is not None:
            row[field.name] = datetime.fromisoformat(row[field.name])
    return row


def _like(name: str, pattern: str | None) -> bool:
    """As `names.like`; None matches every name."""
    return pattern is None or like(name, pattern)
