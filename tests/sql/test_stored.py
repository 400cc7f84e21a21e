"""Queries over a compacted recording: DuckDB reads its Parquet files, and the answers are those of its log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastflight.access.identity import Identity
from tests.support.sql_engine import Sql, engine_over

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


def test_a_query_cannot_name_the_files(compacted: Sql) -> None:
    for function in ("read_parquet", "parquet_metadata", "read_blob", "glob"):
        with pytest.raises(Exception, match="not allowed"):
            compacted.rows(f"select * from {function}('*')")
