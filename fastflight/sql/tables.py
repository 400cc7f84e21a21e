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
from fastflight.errors import (
    BusyError,
    DataError,
    FastFlightError,
    RequestError,
    Stopped,
    TransportError,
    UnknownName,
    nearest,
)
from fastflight.gap import Gap, Why
from fastflight.log import Range
from fastflight.service import Catalog
from fastflight.service.requests import DeviceFile, DeviceListing, DeviceSession, Recording, Request
from fastflight.service.resolve import plain
from fastflight.service.source import Noted, Reading
from fastflight.sources import DeviceFiles
from fastflight.sources.file_rows import summary_of
from fastflight.sources.recorded_rows import WAITED
from fastflight.sources.recording import Readable
from fastflight.sources.session_rows import LINES_SCHEMA
from fastflight.sources.typed_rows import TypedRows
from fastflight.sql.folder import WorkerFolder
from fastflight.sql.names import (
    CATALOG,
    DATABASES,
    FLEET,
    GAPS,
    LINES,
    LIVE,
    OWN_SCHEMA,
    RECORDING,
    ROWS,
    like,
    shown,
    table_of_path,
)
from fastflight.sql.union import select, union_schema
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
# The columns that typed rows always have.
_PLACE = pa.schema([LINES_SCHEMA.field("seq").with_nullable(True), LINES_SCHEMA.field("time")])
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
    Arrow streams, with a query each.
    """

    arrow: Sequence[tuple[str, str]]
    facts: Mapping[str, Any]
    parquet: Sequence[tuple[list[str], str]] = ()


@dataclass(frozen=True, slots=True)
class BoardRows:
    """The typed rows of one board as files in the folder: Parquet files with their columns, and an Arrow stream.

    `parts`: the name of a file, its columns, and the number from which on its rows count.
    """

    schema: pa.Schema
    arrow: str
    facts: Mapping[str, Any]
    parts: Sequence[tuple[str, pa.Schema, int]] = ()

    def selected(self, whole: pa.Schema, device: str | None = None) -> TableFiles:
        """Return these rows with all columns of `whole`; `device` is the value of that column."""
        queries = [(file, f"{select(whole, held, device)} where seq >= {low}") for file, held, low in self.parts]
        parquet = [([file for file, _ in some], query) for query, some in groupby(queries, lambda each: each[1])]
        return TableFiles([(self.arrow, select(whole, self.schema, device))], self.facts, parquet)


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
        has_live: Callable[[str], bool] = lambda device: False,
    ) -> None:
        """`has_live` says whether what a device has in memory is a table."""
        self._has_live = has_live
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
            facts = {"rows": rows} | (self.unlisted(identity) if name.lower() in LISTED else {})
            return TableFiles([(arrow, "")], facts)
        if schema.lower() == FLEET and name.lower() in (ROWS, LIVE):
            return self._union(identity, name.lower(), folder, check)
        request = self._authority.authorize(identity, self._request(identity, path), "read")
        if name.lower() in (ROWS, LIVE):
            found = (self._rows if name.lower() == ROWS else self._live)(request, folder, check)
            return found.selected(found.schema)
        if isinstance(request, Recording) and name.lower() != LINES:
            return (self._gaps if name.lower() == GAPS else self._recording)(request, folder, check)
        if not isinstance(request, DeviceFile):
            found = self._live(request, folder, check)
            return TableFiles([(found.arrow, "")], found.facts)
        with closing(self._files.fetch(request, check)) as content:
            reading = self._files.rows(request, content)
            arrow, rows = _write(reading, folder, check)
            # As in the trailer of a `device.file` request: rejected rows, cells that became null, notes.
            facts = summary_of(reading.schema) or combined([reading.summary()])
            return TableFiles(
                [(arrow, "")], {"from": content.origin, "rows": rows, "bytes": content.spool.size, **facts}
            )

    def _request(self, identity: Identity, path: Sequence[str]) -> DeviceFile | DeviceSession | Recording:
        """Return the request for the rows of a file, a recording, or what is in memory."""
        _, schema, name = path
        if name.lower() in (RECORDING, ROWS, GAPS):
            return Recording(name=schema, as_="rows" if name.lower() == ROWS else None)
        if name.lower() == LIVE:
            return DeviceSession(device=schema, as_="rows", follow=False)
        if name.lower() == LINES:
            if schema in self._recorded(identity):
                return Recording(name=schema, format="lines")
            return DeviceSession(device=schema, format="lines", follow=False)
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
        return TableFiles([(arrow, "")], parts | {key: count for key, count in counts.items() if count}, parquet)

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
        return TableFiles([(arrow, "")], {"rows": count})

    def _rows(self, request: Any, folder: WorkerFolder, check: Callable[[], None]) -> BoardRows:
        """Put the typed rows of a recording into the folder: links to the files of the older ones, and the others."""
        with self._typed.open(request.name, check) as table:
            parts = [(folder.link(each.part.file), each.part.schema, each.low) for each in table.parts]
            arrow, _ = folder.write(table.schema, table.batches())
            counts = {"gaps": table.gaps, "lost": table.lost, **combined(table.summaries())}
        facts = {"parts": len(table.parts)} | {key: count for key, count in counts.items() if count}
        return BoardRows(table.schema, arrow, facts, parts)

    def _live(self, request: Request, folder: WorkerFolder, check: Callable[[], None]) -> BoardRows:
        """Put rows that are in memory, or the lines of a recording, into the folder."""
        source = self._catalog.source_of(request)
        assert source.read is not None
        reading = source.read(request)
        arrow, rows = _write(reading, folder, check)
        summary = reading.summary()
        counts = {key: summary.get(key) for key in ("gaps", "lost")} | combined([summary])
        facts = {"rows": rows} | {key: count for key, count in counts.items() if count}
        return BoardRows(plain(reading.schema).remove_metadata(), arrow, facts)

    def _union(self, identity: Identity, table: str, folder: WorkerFolder, check: Callable[[], None]) -> TableFiles:
        """Put the typed rows of all boards that have some into the folder. Boards that cannot be asked are noted."""
        boards: dict[str, BoardRows] = {}
        notes: dict[str, list[str]] = {}
        for device in self._boards(identity, table):
            request = self._authority.authorize(identity, self._request(identity, (CATALOG, device, table)), "read")
            try:
                boards[device] = (self._rows if table == ROWS else self._live)(request, folder, check)
            except (TransportError, BusyError) as error:
                notes.setdefault(f"cannot be asked ({error.what})", []).append(device)
            except (RequestError, DataError):  # no table, or gone
                continue
        whole = union_schema([_PLACE, *(each.schema for each in boards.values())])
        arrow, _ = folder.write(whole, ())
        files = [each.selected(whole, device) for device, each in boards.items()]
        facts = combined(each.facts for each in files)
        for said, names in notes.items():
            facts.setdefault("notes", []).append(f"{_few(names)} {said}")
        return TableFiles(
            [(arrow, ""), *(stream for each in files for stream in each.arrow)],
            {"boards": len(boards), **facts},
            [some for each in files for some in each.parquet],
        )

    def _boards(self, identity: Identity, table: str) -> Iterator[str]:
        """Yield the names of the boards whose rows a table of `FLEET` may have."""
        if table == ROWS:
            yield from filter(self._typed.has_table, self._recorded(identity))
        else:
            yield from self._devices(identity, DeviceSession)

    def _has_fleet(self, identity: Identity, table: str) -> bool:
        return any(table == ROWS or self._has_live(device) for device in self._boards(identity, table))

    def schemas(self, identity: Identity, schema: str | None = None) -> list[str]:
        """Return the names of the schemas that match a pattern of SQL's `like`."""
        fleet = [FLEET] if any(self._has_fleet(identity, table) for table in (ROWS, LIVE)) else []
        names = dict.fromkeys([OWN_SCHEMA, *fleet, *self._devices(identity), *self._recorded(identity)])
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
        for name in (ROWS, LIVE):
            if _like(FLEET, schema) and _like(name, table) and self._has_fleet(identity, name):
                yield self._with_union(TableName(CATALOG, FLEET, name, DATA_TYPE), identity, with_schemas)
        with_lines = set()
        for kind in (DeviceFile, Recording, DeviceSession):
            found = self._catalog.source(kind.type).requests(partial(_takes, listing, kind, schema))
            for device, name, request in (each for whole, _ in found for each in _tables_of(whole)):
                if name == LINES and device in with_lines:
                    continue
                if _like(name, table) and listing.has(request):
                    check()
                    if name == LINES:
                        with_lines.add(device)
                    if name not in (ROWS, LIVE) or (self._typed.has_table if name == ROWS else self._has_live)(device):
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

    def _with_union(self, name: TableName, identity: Identity, with_schema: bool) -> TableName:
        if not with_schema:
            return name
        found = [
            self._with_schema(name, self._request(identity, (CATALOG, device, name.name))).schema
            for device in self._boards(identity, name.name)
        ]
        return replace(name, schema=union_schema([_PLACE, *(each for each in found if each is not None)]))

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

    def _devices(self, identity: Identity, kind: type[Request] = DeviceFile) -> list[str]:
        listing = Listing(self._authority, identity)
        return [each["name"] for each in self._act("devices", identity) if listing.takes(kind, each["name"])]

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


def _few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _takes(listing: Listing, kind: type[Request], pattern: str | None, name: str) -> bool:
    return _like(name, pattern) and listing.takes(kind, name)


def _tables_of(request: Request) -> Iterator[tuple[str, str, Request]]:
    """Yield the tables of a file, a recording or a session: the device, the name, and the request for the rows."""
    if isinstance(request, DeviceSession):
        in_memory = request.model_copy(update={"follow": False})
        yield request.device, LIVE, in_memory.model_copy(update={"as_": "rows"})
        yield request.device, LINES, in_memory.model_copy(update={"format": "lines"})
    elif isinstance(request, Recording):
        yield request.name, RECORDING, request
        yield request.name, GAPS, request
        yield request.name, ROWS, request.model_copy(update={"as_": "rows"})
        yield request.name, LINES, request.model_copy(update={"format": "lines"})
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
