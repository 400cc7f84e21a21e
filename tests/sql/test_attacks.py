"""Queries that try to read what their token may not, and processes of queries that send what they did not announce."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fastflight.access.identity import ANYBODY, Identity, scopes
from fastflight.errors import AccessError, QueryLimit, RequestError, SourceError
from fastflight.sql.folder import WorkerFolder
from fastflight.sql.frames import Kind, Pipe
from fastflight.sql.functions import FUNCTIONS
from fastflight.sql.process import SqlLimits
from fastflight.sql.run import Run
from fastflight.sql.statement import DUCKDB_NAMES, TABLE_FUNCTIONS
from tests.support.refusals import refused
from tests.support.sql_engine import Sql

NOBODY = Identity("eve", scopes(["read:zzz"]))
ROW_BYTES = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _process(sql: Sql) -> None:
    """Each client has a process of its own, which stays: it is not a test's."""
    sql.rows("select 1", identity=NOBODY)


def test_the_time_is_that_of_the_query(sql: Sql) -> None:
    first, second = (
        sql.rows("select now() as x, age(timestamp '2000-01-01') = age(current_date, timestamp '2000-01-01') as y")[0]
        for _ in range(2)
    )
    assert first["y"] and first["x"] < second["x"]
    (row,) = sql.rows("select count(distinct now()) as n from range(100000)")
    assert row == {"n": 1}


def test_each_function_is_known_to_duckdb_and_all_others_are_refused(sql: Sql) -> None:
    with closing(duckdb.connect()) as database:
        found = database.execute("select distinct lower(function_name) from duckdb_functions()").fetchall()
    known = {name for (name,) in found}
    assert FUNCTIONS <= known
    for name in sorted(name for name in known - FUNCTIONS - TABLE_FUNCTIONS if name.isidentifier())[::20]:
        with refused(RequestError, where=f"function {name}"):
            sql.rows(f"select {name}(1)", identity=NOBODY)


class Peer:
    """A worker that a thread plays: it answers the dialogue with the frames of `play`."""

    def __init__(self, play: Callable[[Pipe], None], folder: Path) -> None:
        self.limits = SqlLimits(row_bytes=ROW_BYTES)
        ours, theirs = socket.socketpair()
        self.pipe, self._theirs = Pipe(ours.detach()), Pipe(theirs.detach())
        self.folder = WorkerFolder(folder)
        self._thread = threading.Thread(target=self._run, args=[play])
        self._thread.start()
        self.discarded = False

    def _run(self, play: Callable[[Pipe], None]) -> None:
        with closing(self._theirs):
            for _ in range(2):  # the query and its parameters
                self._theirs.receive()
            try:
                play(self._theirs)
                while True:
                    self._theirs.receive()
            except EOFError:
                pass

    def take(self, identity: Identity) -> Peer:
        return self

    def discard(self, worker: Peer) -> None:
        self.discarded = True
        self.pipe.close()
        self._thread.join()
        self.folder.remove()

    give_back = discard

    def exit_code(self) -> int:
        return 0


ANNOUNCED = pa.schema([("x", pa.string())])


def _begin(pipe: Pipe, schema: pa.Schema = ANNOUNCED, explains: bool = False) -> None:
    pipe.send(Kind.TABLES, {"tables": [], "lists": False, "explains": explains})
    pipe.receive()
    pipe.send(Kind.SCHEMA, schema.serialize())


def _rows(columns: dict[str, Any], schema: pa.Schema = ANNOUNCED, **options: Any) -> Callable[[Pipe], None]:
    batch, sink = pa.RecordBatch.from_pydict(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()
    return _after_schema(Kind.ROWS, stream[batch.schema.serialize().size : -8], schema=schema)


def _text(*offsets: int, content: bytes = b"abcd") -> Callable[[Pipe], None]:
    """Two texts at these offsets of a buffer of four bytes."""
    good = pa.RecordBatch.from_pydict({"x": ["a", "bcd"]}).serialize().to_pybytes()
    return _after_schema(
        Kind.ROWS, good.replace(struct.pack("<3i", 0, 1, 4), struct.pack("<3i", *offsets)).replace(b"abcd", content)
    )


def _after_schema(kind: Kind, payload: Any, schema: pa.Schema = ANNOUNCED) -> Callable[[Pipe], None]:
    def play(pipe: Pipe) -> None:
        _begin(pipe, schema)
        pipe.send(kind, payload)

    return play


HOSTILE: dict[str, Callable[[Pipe], None]] = {
    "other columns": _rows({"x": [1 << 40, 7]}),
    "an offset beyond the end": _text(0, 1, 1_500_000),
    "an offset before the start": _text(-4096, 1, 4),
    "a negative length": _text(0, 4, 2),
    "text that is not UTF-8": _text(0, 1, 4, content=b"\xff\xff\xff\xff"),
    "rows that unpack to more than they may": _rows({"x": ["x" * (65 << 20)]}, compression="zstd"),
    "a schema for rows": _after_schema(Kind.ROWS, ANNOUNCED.serialize()),
    "no message": _after_schema(Kind.ROWS, b"\xff" * 64),
    "nothing": _after_schema(Kind.ROWS, b""),
    "a failure that is no text": _after_schema(Kind.FAILED, {"limit": "memory_bytes"}),
    "a failure that is a list": _after_schema(Kind.FAILED, [1]),
    "a plan with other columns": lambda pipe: _begin(pipe, explains=True),
    "a dictionary": _rows({"x": [1]}, pa.schema([("x", pa.dictionary(pa.int8(), pa.string()))])),
    "tables that are no names": lambda pipe: pipe.send(
        Kind.TABLES, {"tables": [[1, 2, 3]], "lists": False, "explains": False}
    ),
    "tables that are a list": lambda pipe: pipe.send(Kind.TABLES, [1]),
    "no kind of frame": lambda pipe: pipe._connection.send_bytes(b"\xff"),
    "a frame that is longer than it may": lambda pipe: pipe._connection.send_bytes(b"12"),
    "an empty frame": lambda pipe: pipe._connection.send_bytes(b""),
}


@contextmanager
def played(sql: Sql, play: Callable[[Pipe], None]) -> Iterator[Run]:
    peer = Peer(play, sql.folder.parent)
    with closing(Run(sql.engine.tables, peer, ANYBODY)) as run:  # type: ignore[arg-type]
        yield run
    assert peer.discarded


@pytest.mark.parametrize("what", HOSTILE)
def test_a_process_that_sends_something_else_is_ended(sql: Sql, what: str) -> None:
    with played(sql, HOSTILE[what]) as run, refused(SourceError, where="query"):
        run.ask("select 1", None)
        for batches in run.batches():
            assert not batches


def test_a_process_that_sends_what_it_has_announced_is_believed(sql: Sql) -> None:
    def play(pipe: Pipe) -> None:
        _text(0, 1, 4)(pipe)
        pipe.send(Kind.END)

    with played(sql, play) as run:
        run.ask("select 1", None)
        assert [batch.to_pydict() for batches in run.batches() for batch in batches] == [{"x": ["a", "bcd"]}]


def test_a_row_has_a_largest_size(sql: Sql) -> None:
    limit = SqlLimits().row_bytes
    assert sql.rows(f"select length(repeat('x', {limit + 1})) as n") == [{"n": limit + 1}]
    assert sql.rows(f"select octet_length(x::blob) as n from (select repeat('x', {limit - 100}) as x)") == [
        {"n": limit - 100}
    ]
    (row,) = sql.rows(f"select repeat('x', {limit - 100}) as x")
    assert len(row["x"]) == limit - 100
    for query in (
        "select repeat('x', 150000000)",
        f"select repeat('x', {limit}) as x",
        f"select case when range = 700 then repeat('x', {limit}) end as x from range(1000)",
        f"select list(range) as x from range({limit // 8})",
    ):
        with refused(QueryLimit, limit="row_bytes", size=limit):
            sql.rows(query)
    with (
        played(sql, _rows({"x": ["x" * ROW_BYTES]})) as run,
        refused(QueryLimit, limit="row_bytes", size=ROW_BYTES),
    ):
        run.ask("select 1", None)
        list(run.batches())


def test_large_values_come_in_frames_of_their_own(sql: Sql) -> None:
    table = sql.table("select range as n, repeat('x', (range % 7 * 500000)::int) as x from range(50) order by n")
    assert table["n"].to_pylist() == list(range(50))
    assert [len(each) for each in table["x"].to_pylist()] == [n % 7 * 500_000 for n in range(50)]


HIDDEN = (
    "select (with pg_settings as (select 1) select 1), * from pg_settings",
    "select (with duckdb_logs as (select 1) select 1), * from duckdb_logs",
    "select (with t as (select 1) select 1), * from t",
    "select (with rows as (select 1) select 1), * from rows",
    "with a as (select * from b), b as (select 1) select * from a",
    "with a as (select * from a) select * from a",
    "with recursive a as (select * from a) select * from a",
    "(with a as (select 1) select * from a) union all select * from a",
    "select * from (with a as (select 1) select * from a), a",
    "select * from pg_settings",
    "select * from pg_catalog.pg_settings",
    "select * from system.pg_catalog.pg_settings",
    "select * from system.main.duckdb_logs",
    "with duckdb_views as (select 1) select * from duckdb_views",
    "with PG_tables as (select 1) select * from pg_tables",
    "with sqlite_master as (select 1) select 1",
    "describe pg_settings",
    "summarize pg_settings",
    "show pg_settings",
    "show databases",
    "select * from (show pg_settings)",
    "show tables from temp",
    "show tables from pg_catalog",
    'select * from temp.main.table0, demo."a.csv"',
    "with main as (select 1) select * from main.pg_settings",
    "select * from information_schema.columns",
)


@pytest.mark.parametrize("query", HIDDEN)
def test_no_name_reaches_a_table_of_duckdb(sql: Sql, query: str) -> None:
    with pytest.raises((RequestError, AccessError)):
        sql.rows(query, identity=NOBODY)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("with a as (select 1 as x), b as (select * from a) select x from b", 1),
        ("with a as (select 1 as x) select (select max(x) from a) as x", 1),
        ("with A as (select 1 as x) select x from a", 1),
        ("with a as (select 1 as x) select x from (with b as (select * from a) select * from b)", 1),
        ("with recursive r as (select 1 as x union all select x + 1 from r where x < 3) select max(x) as x from r", 3),
        ("with a as (select 1 as x) select x from (with a as (select 2 as x) select * from a)", 2),
        ("with tables as (select 1 as x) select x from tables", 1),
        ("with a as (select 1 as x) select x from a order by (with b as (select * from a) select x from b)", 1),
        ('with demo as (select 1 as x) select count(*) + min(demo.x) as x from demo, demo."a.csv"', 4),
        ('with v as (select v from demo."a.csv") select sum(v) as x from v', 61.5),
    ],
)
def test_a_name_of_a_subquery_is_known_where_sql_knows_it(sql: Sql, query: str, answer: object) -> None:
    assert sql.rows(query) == [{"x": answer}]


def test_every_view_of_duckdb_that_needs_no_schema_has_a_reserved_name() -> None:
    with closing(duckdb.connect()) as database:
        found = database.execute(
            "select view_name from duckdb_views() where internal and schema_name <> 'information_schema'"
        ).fetchall()
    assert found and all(name.startswith(DUCKDB_NAMES) for (name,) in found)
