"""Queries over a compacted recording: DuckDB reads its Parquet files, and the answers are those of its log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.access.identity import Identity, scope
from fastflight.log import Store, compact
from fastflight.sql.tables import _time_column
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.sql_engine import FIRST_NS, RECORDED, Sql, engine_over, record

COMPACTED = 700
QUERIES = (
    "select * from demo.recording",
    "select * from demo.recording limit 10",
    "select * from demo.recording limit 10 offset 695",
    "select seq, time from demo.recording where time is null or seq in (1, 699, 700, 999) order by seq",
    "select count(*) as n, sum(octet_length(data)) as b, max(time) as t from demo.recording",
    "select direction, count(*) as n from demo.recording group by direction order by direction",
    "select data from demo.recording where seq between 690 and 710 and direction = 'tx'",
    "select seq from demo.recording where time >= '2025-06-15 15:18:00+00' and time < '2025-06-15 15:18:30+00'",
    "select a.seq from demo.recording a join demo.recording b on a.seq = b.seq + 1 where b.seq > 996 order by 1",
    "select seq from demo.recording where seq < 0 or seq > 2000",
)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    with engine_over(tmp_path_factory.mktemp("compacted"), compacted=COMPACTED) as made:
        made.rows("select 1", identity=Identity("a", ()))  # each client has a process of its own, which stays
        yield made


@pytest.mark.parametrize("query", QUERIES)
def test_a_compacted_recording_gives_the_same_answer(sql: Sql, compacted: Sql, query: str) -> None:
    expected = sql.table(query)
    assert compacted.table(query).equals(expected)
    assert compacted.table(query).schema == expected.schema


def test_duckdb_reads_the_files_and_skips_what_no_condition_needs(compacted: Sql) -> None:
    explained = compacted.explained("select data from demo.recording where seq < 100")
    assert "READ_PARQUET" in explained["analyzed_plan"] and "seq < 100" in explained["analyzed_plan"]
    assert explained["demo.recording"].startswith("parts: 2, bytes: ")


@pytest.mark.parametrize("name", ["demo", "other"])
def test_a_file_without_cuts_is_skipped_by_its_times(tmp_path: Path, name: str) -> None:
    """The file of `demo` has a row whose time is not known."""
    record(tmp_path, "demo", compacted=COMPACTED)
    with Store(tmp_path) as store:
        log = store.open("other")
        log.append(log_batch([Chunk(n, FIRST_NS + n, "rx", b"x") for n in range(10)], {})).result()
        compact(store, file_bytes=0, least=1)
        file = store.log(name).stored().files[0]
    assert (_time_column(file) == "time") == (name == "other")


@pytest.mark.parametrize("scopes", [("session:*",), ("session:demo",), ("read:*", "session:dem*")])
def test_each_client_that_may_read_a_recording_reads_its_files(compacted: Sql, scopes: tuple[str, ...]) -> None:
    identity = Identity("a", tuple(map(scope, scopes)))
    query = "select sum(octet_length(data)) as n from demo.recording"
    assert compacted.rows(query, None, identity) == compacted.rows(query)
    reading = compacted.engine.execute(f"explain {query}", identity)
    (plan, _) = [row for batches in reading for batch in batches for row in batch["explain_value"].to_pylist()]
    assert "READ_PARQUET" in plan


def test_a_query_keeps_the_rows_that_retention_removes(tmp_path: Path) -> None:
    with engine_over(tmp_path, compacted=COMPACTED) as sql:
        reading = sql.engine.execute("select * from demo.recording")
        for file in (tmp_path / "recordings").glob("*.parquet"):
            file.unlink()
        assert sum(batch.num_rows for batches in reading for batch in batches) == RECORDED
        assert not list((tmp_path / "recordings").glob("queries-*/[0-9a-f]*"))


def test_a_query_cannot_name_the_files(compacted: Sql) -> None:
    for function in ("read_parquet", "parquet_metadata", "read_blob", "glob"):
        with pytest.raises(Exception, match="not allowed"):
            compacted.rows(f"select * from {function}('*')")


def test_damaged_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    with engine_over(tmp_path, compacted=COMPACTED) as sql:
        (parquet,) = (tmp_path / "recordings").glob("*.parquet")
        whole = bytearray(parquet.read_bytes())
        whole[len(whole) // 8] ^= 1
        parquet.write_bytes(whole)
        reading = sql.engine.execute("select count(*) as n from demo.recording where octet_length(data) > 0")
        (row,) = [row for batches in reading for batch in batches for row in batch.to_pylist()]
        assert row == {"n": RECORDED - COMPACTED}
        assert reading.summary()["tables"]["demo.recording"]["lost"] == COMPACTED
