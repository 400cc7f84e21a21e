"""Queries over a board's files and recording: what they give, and what is refused."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from fastflight.access.identity import ANYBODY, Identity, scopes
from fastflight.device import AsyncSession
from fastflight.errors import (
    DataError,
    FileMissing,
    Forbidden,
    QueryLimit,
    RequestError,
    SourceError,
    Stopped,
    UnknownName,
)
from fastflight.log import Store
from fastflight.service.requests import MAX_PARAMETERS, MAX_QUERY_CHARACTERS
from fastflight.sql.process import SqlLimits
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import clear, log_batch
from tests.support.refusals import refused
from tests.support.sql_engine import FIRST_NS, RECORDED, Sql, engine_over

# For what ends soon; on a busy computer later.
SOON = 60.0


def test_files_and_recordings_are_tables_of_their_device(sql: Sql) -> None:
    assert sql.rows('select sum(v) as total from demo."a.csv"') == [{"total": 61.5}]
    assert sql.rows('select name from server.demo."logs/b.jsonl" order by t desc') == [{"name": "c"}, {"name": "a"}]
    assert sql.rows("select count(*) as n, min(seq) as first from demo.recording") == [{"n": RECORDED, "first": 0}]
    joined = 'select b.name, a.v from demo."a.csv" a join demo."logs/b.jsonl" b using (t) order by t'
    assert sql.rows(joined) == [{"name": "a", "v": 10.5}, {"name": "c", "v": 30.5}]


def test_a_table_is_read_as_often_as_the_query_needs_it(sql: Sql) -> None:
    query = 'select count(*) as n from demo."a.csv" x, demo."a.csv" y where x.t <= y.t'
    assert sql.rows(query) == [{"n": 6}]
    twice = "with r as (select seq from demo.recording where seq < 5) select count(*) as n from r a, r b"
    assert sql.rows(twice) == [{"n": 25}]


def test_columns_may_be_named_with_their_table(sql: Sql) -> None:
    assert sql.rows("select demo.recording.seq from demo.recording where recording.seq = 7") == [{"seq": 7}]


def test_a_recording_has_the_columns_of_its_request(sql: Sql) -> None:
    (row,) = sql.rows("select * from demo.recording where seq = 10")
    time = datetime.fromtimestamp(FIRST_NS // 10**9 + 10, UTC)
    assert row == {"seq": 10, "time": time, "direction": "tx", "data": b"line 10\n"}


@pytest.mark.parametrize(
    ("query", "parameters", "answer"),
    [
        ("select ? + ? as x", [1, 2], 3),
        ("select $2 || $1 as x", ["b", "a"], "ab"),
        ("select count(*) as x from demo.recording where time >= $since", {"since": "2025-06-15 15:23:10"}, 10),
        ("select count(*) as x from demo.recording where seq < $n", {"n": "5"}, 5),
        ("select $1 is null as x", [None], True),
    ],
)
def test_parameters(sql: Sql, query: str, parameters: object, answer: object) -> None:
    assert sql.rows(query, parameters) == [{"x": answer}]  # type: ignore[arg-type]


def test_parameters_may_be_a_batch_of_any_types(sql: Sql) -> None:
    since = datetime.fromtimestamp(FIRST_NS // 10**9 + 990, UTC)
    batch = pa.RecordBatch.from_pydict({"1": pa.array([since], pa.timestamp("us", "Europe/Berlin"))})
    assert sql.rows("select count(*) as n from demo.recording where time >= ?", batch) == [{"n": 10}]
    with refused(RequestError, where="parameter 2"):
        sql.rows("select $1, $2", [1])


def test_a_query_is_prepared_without_running_it(sql: Sql) -> None:
    prepared = sql.engine.prepare('select v, $b as b, t + $a as a from demo."a.csv"')
    assert prepared.schema.names == ["v", "b", "a"] and prepared.schema.field("v").type == pa.float64()
    assert prepared.parameters.names == ["a", "b"]
    assert sql.engine.prepare("select count(*) as n from range(1000000000000)").schema.names == ["n"]


@pytest.mark.parametrize(
    ("query", "table"),
    [
        ("show tables", "fastflight.tables"),
        ("from fastflight.files", "fastflight.files"),
        ("from information_schema.tables", "information_schema"),
    ],
)
def test_a_listing_says_whose_files_it_does_not_have(sql: Sql, query: str, table: str) -> None:
    assert "notes" not in sql.summary(query)["tables"].get(table, {})
    with sql.inventory.device("demo").lease("a test"):
        (note,) = sql.summary(query)["tables"][table]["notes"]
    assert re.match(r"the files of demo are as listed \d+ s ago \(in use by a test for [^;]*; ask again", note), note
    assert "notes" not in sql.summary(query)["tables"].get(table, {})


def test_the_server_itself_has_tables(sql: Sql) -> None:
    assert sql.rows("select name, holder from fastflight.devices order by name") == [
        {"name": "demo", "holder": None},
        {"name": "other", "holder": None},
    ]
    files = sql.rows("select path, bytes from fastflight.files where device = 'demo' order by path")
    assert {"path": "/logs/b.jsonl", "bytes": len(b'{"t": 1, "name": "a"}\n') * 2} in files
    assert sql.rows("select name, rows, next_seq from fastflight.recordings") == [
        {"name": "demo", "rows": RECORDED, "next_seq": RECORDED}
    ]


def test_names_are_shown_as_they_must_be_written(sql: Sql) -> None:
    names = [row["sql_name"] for row in sql.rows("show tables") if row["schema"] == "demo"]
    files = ['demo."a.csv"', 'demo."bad.arrow"', 'demo."logs/b.jsonl"']
    assert sorted(names) == sorted([*files, "demo.gaps", "demo.lines", "demo.recording"])
    for name in (name for name in names if "bad" not in name and "gaps" not in name):
        assert sql.rows(f"select count(*) > 0 as filled from {name}") == [{"filled": True}]
    standard = "select table_name from information_schema.tables where table_schema = 'demo' order by 1"
    assert [row["table_name"] for row in sql.rows(standard)] == [
        "a.csv",
        "bad.arrow",
        "gaps",
        "lines",
        "logs/b.jsonl",
        "recording",
    ]
    assert [row["column_name"] for row in sql.rows('describe demo."a.csv"')] == ["t", "v"]


def test_gaps_are_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(folder: Path, *_: object, **__: object) -> None:
        with Store(folder, sync_ms=0) as store:
            log = store.open("demo")
            for first in (0, 10, 20, 40):
                rows = [Chunk(n, FIRST_NS, "rx", b"line %d" % n) for n in range(first, first + 10)]
                log.append(log_batch(rows, {}), first=first).result()
            clear(store, "demo", 10)
        path = folder / "recordings.db"
        path.write_bytes(path.read_bytes().replace(b"line 25", b"line 26"))

    monkeypatch.setattr("tests.support.sql_engine.record", record)
    with engine_over(tmp_path) as sql:
        assert sql.rows("select why, first, last, rows from demo.gaps") == [
            {"why": "cleared", "first": 0, "last": 9, "rows": 10},
            {"why": "damaged", "first": 20, "last": 29, "rows": 10},
            {"why": "not read in time", "first": 30, "last": 39, "rows": 10},
        ]
        assert sql.rows("select gaps from fastflight.recordings") == [{"gaps": 3}]
    with Store(tmp_path / "recordings") as store:
        assert store.log("demo").statistics().gaps == 2  # damage is found by reading
        list(store.log("demo").read())
        assert store.log("demo").statistics().gaps == 3


def test_a_file_that_cannot_be_understood_is_a_table_whose_reading_says_why(sql: Sql) -> None:
    with pytest.raises(DataError, match="demo:/bad.arrow"):
        sql.rows('select * from demo."bad.arrow"')
    (found,) = sql.engine.tables.listing(ANYBODY, "demo", "bad.arrow", with_schemas=True)
    assert found.schema is None and "bad.arrow" in found.trouble


def test_a_listing_with_columns_ends_when_its_client_leaves(sql: Sql) -> None:
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Stopped("the client has left")

    found = sql.engine.tables.listing(ANYBODY, "demo", with_schemas=True, check=check)
    with pytest.raises(Stopped):
        list(found)
    assert len(calls) == 2


def test_what_is_not_there(sql: Sql) -> None:
    with refused(FileMissing, where="demo:/none.csv"):
        sql.rows('select * from demo."none.csv"')
    with refused(UnknownName, where="nobody"):
        sql.rows('select * from nobody."a.csv"')
    with refused(UnknownName, where="other"):
        sql.rows("select * from other.recording")
    with refused(RequestError, where="a"):
        sql.rows("select * from a")
    with refused(RequestError, where="query"):
        sql.rows('select nothing from demo."a.csv"')


READER = Identity("ada", scopes(["read:demo"]))
LISTENER = Identity("bob", scopes(["session:*"]))


@pytest.fixture(scope="module", autouse=True)
def _processes(sql: Sql) -> None:
    """Each client has a process of its own, which stays: it is not a test's."""
    for identity in (READER, LISTENER):
        sql.rows("select 1", identity=identity)


def test_each_table_takes_the_right_of_its_request(sql: Sql) -> None:
    assert sql.rows('select count(*) as n from demo."a.csv"', identity=READER) == [{"n": 3}]
    assert sql.rows("select count(*) as n from demo.recording", identity=LISTENER) == [{"n": RECORDED}]
    with pytest.raises(Forbidden):
        sql.rows("select * from demo.recording", identity=READER)
    with pytest.raises(Forbidden):
        sql.rows('select * from demo."a.csv"', identity=LISTENER)
    with refused(UnknownName, where="other"):
        sql.rows('select * from other."readings.csv"', identity=READER)


def test_a_table_that_one_may_not_read_is_not_there(sql: Sql) -> None:
    def seen(identity: Identity) -> set[str]:
        return {f"{row['schema']}.{row['name']}" for row in sql.rows("show tables", identity=identity)} - {
            f"fastflight.{name}" for name in ("crashes", "devices", "files", "recordings", "tables")
        }

    assert seen(READER) == {"demo.a.csv", "demo.bad.arrow", "demo.logs/b.jsonl"}
    assert seen(LISTENER) == {"demo.gaps", "demo.lines", "demo.recording", "other.lines"}
    assert sql.rows("select count(*) as n from fastflight.files where device = 'other'", identity=READER) == [{"n": 0}]
    assert [row["name"] for row in sql.rows("select name from fastflight.devices", identity=READER)] == ["demo"]
    assert sql.engine.tables.schemas(READER) == ["fastflight", "demo"]
    assert sql.rows("select 1 as x from information_schema.tables where table_schema = 'other'", identity=READER) == []


@pytest.mark.parametrize(
    "query",
    ['insert into demo."a.csv" values (1, 2)', "create table x (a int)", "copy (select 1) to 'x.csv'", "drop table x"],
)
def test_a_statement_that_writes_is_refused_with_the_verb_to_use(sql: Sql, query: str) -> None:
    with pytest.raises(RequestError, match="fastflight put"):
        sql.rows(query)


@pytest.mark.parametrize("query", ["", ";", "select 1; select 2", "select 1; drop table x", "-- nothing"])
def test_one_statement_at_a_time(sql: Sql, query: str) -> None:
    with refused(RequestError, where="query"):
        sql.rows(query)


def test_explain_shows_the_plan_and_what_each_table_is_made_of(sql: Sql) -> None:
    query = 'select b.name from demo."logs/b.jsonl" b, demo.recording r where b.t = r.seq'
    planned = {row["explain_key"]: row["explain_value"] for row in sql.rows(f"explain {query}")}
    ran = sql.explained(query)
    assert planned.keys() - ran.keys() == {"physical_plan"} and ran.keys() - planned.keys() == {"analyzed_plan"}
    assert "Total Time" in ran["analyzed_plan"]
    assert ran['demo."logs/b.jsonl"'] == "from: cache, rows: 2, bytes: 44"
    assert "bytes: " in ran["demo.recording"]
    for text in planned.values():
        assert str(sql.folder.parent) not in text


def test_explain_says_where_a_file_came_from(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    (sql.folder / "new.csv").write_bytes(b"n\n1\n")
    query = 'select n from demo."new.csv"'
    assert "from: board, rows: 1, bytes: 4" in sql.explained(query)['demo."new.csv"']
    assert "from: cache" in sql.explained(query)['demo."new.csv"']

    async def no_digest(*_: object) -> tuple[str, str]:
        return "", ""

    monkeypatch.setattr(AsyncSession, "hash", no_digest)
    assert "from: board without digests" in sql.explained(query)['demo."new.csv"']
    (sql.folder / "new.csv").unlink()


def test_clients_at_once_get_their_own_answers(tmp_path: Path) -> None:
    query = "select $1 as n, sum(seq) as s from demo.recording where seq < $1"
    with engine_over(tmp_path) as sql, ThreadPoolExecutor(16) as pool:
        answers = pool.map(lambda n: sql.rows(query, [n]), range(1, 33))
        assert [row for (row,) in answers] == [{"n": n, "s": n * (n - 1) // 2} for n in range(1, 33)]


@pytest.mark.parametrize(
    "condition",
    [
        "seq < 10 or seq > 990",
        "not (seq >= 10)",
        "direction = 'tx' and seq <= 100",
        "seq in (1, 2, 500)",
        "time - interval 1 hour < '2025-06-15 14:07:00'",
        "data = 'AND (seq >= 500)'::blob or seq = 1",
        "seq + 1 = 3",
        "seq >= 3 and seq < 3",
        "case when seq > 3 then seq < 5 end",
    ],
)
def test_what_is_pushed_down_changes_no_answer(sql: Sql, condition: str) -> None:
    every = "with r as materialized (select * from demo.recording)"
    expected = sql.rows(f"{every} select seq from r where {condition} order by seq")
    assert sql.rows(f"select seq from demo.recording where {condition} order by seq") == expected


def test_a_query_and_its_parameters_have_limits(sql: Sql) -> None:
    with refused(RequestError, where="query"):
        sql.rows("select 1 --" + "x" * MAX_QUERY_CHARACTERS)
    with refused(RequestError, where="parameters"):
        sql.rows("select 1", [1] * (MAX_PARAMETERS + 1))
    with refused(RequestError, where="parameters"):
        sql.rows("select $1", [object()])


def test_the_limits_of_a_query_end_it(tmp_path: Path) -> None:
    """Those of rows and of memory, whatever the time; that of time is in `tests/corpus`."""
    with engine_over(tmp_path, SqlLimits(memory_bytes=64 << 20, seconds=SOON, rows=1000, queries=2)) as sql:
        with refused(QueryLimit, limit="rows", size=1000):
            sql.rows("select * from range(1001)")
        with refused(QueryLimit, limit="memory", size=64 << 20):
            sql.rows("select array_agg(range) from range(100000000)")
        assert sql.rows("select count(*) as n from range(1000)") == [{"n": 1000}]


def test_a_process_that_is_killed_is_not_taken_for_the_limit_of_memory(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with engine_over(tmp_path, SqlLimits(queries=1)) as sql:
        new = set(psutil.Process().children()) - before
        reading = sql.engine.execute("select * from range(10000000000000)", ANYBODY)
        with pytest.raises(SourceError, match="Killed"), closing(reading):
            for number, _ in enumerate(reading):
                if number == 2:
                    (worker,) = (each for each in new if "fastflight.sql.worker" in each.cmdline())
                    worker.kill()
        assert sql.rows("select 1 as x") == [{"x": 1}]


def test_a_client_leaves_room_for_the_queries_of_others(tmp_path: Path) -> None:
    bob = Identity("bob", scopes(["read:*"]))
    with engine_over(tmp_path, SqlLimits(queries=2)) as sql, ThreadPoolExecutor(1) as pool:
        reading = sql.engine.execute("select * from range(10000000000000)", READER)
        with closing(reading):
            rows = iter(reading)
            assert any(rows)
            waiting = pool.submit(sql.rows, "select 2 as x", None, READER)
            assert [sql.rows("select 1 as x", identity=bob) for _ in range(3)] == [[{"x": 1}]] * 3
            assert not waiting.done()
        assert waiting.result() == [{"x": 2}]


def test_an_answer_that_is_closed_ends_its_query(tmp_path: Path) -> None:
    with engine_over(tmp_path, SqlLimits(queries=1)) as sql:
        reading = sql.engine.execute("select * from range(10000000000000)", ANYBODY)
        with closing(reading):
            rows = iter(reading)
            assert any(rows)
        assert sql.rows("select 1 as x") == [{"x": 1}]


def test_an_answer_that_is_closed_before_it_is_read_leaves_room_for_others(tmp_path: Path) -> None:
    """As that of a client that left while its query began."""
    with engine_over(tmp_path, limits=SqlLimits(queries=1)) as sql:
        sql.engine.execute("select * from range(10000000000000)", ANYBODY).close()
        assert sql.rows("select 1 as n") == [{"n": 1}]


def test_the_process_of_a_client_is_for_no_other(tmp_path: Path) -> None:
    with engine_over(tmp_path, SqlLimits(queries=2)) as sql:

        def owners() -> list[str]:
            return [worker.owner for worker in sql.engine._workers._idle]

        assert owners() == [""]
        for identity, expected in ((READER, ["", "ada"]), (READER, ["", "ada"]), (LISTENER, ["ada", "bob"])):
            sql.rows("select 1", identity=identity)
            assert owners() == expected
