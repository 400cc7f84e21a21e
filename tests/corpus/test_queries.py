"""Bad queries: `queries` has them. Each is refused or reaches a limit, and nothing else is disturbed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastflight.errors import QueryLimit
from fastflight.sql.process import SqlLimits
from tests.support.sql_engine import Sql, engine_over
from tests.support.waiting import until

from . import queries
from .case import Case, check, each

LIMITS = SqlLimits(memory_bytes=128 << 20, seconds=60.0, rows=100_000, queries=2)
# Of queries without end. On a busy computer another one may need as long.
SHORT_SECONDS = 1.0
# What the server may keep of all queries of this module.
MEMORY_BYTES = 64 << 20


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    with engine_over(tmp_path_factory.mktemp("sql"), LIMITS) as made:
        yield made


@each([case for case in queries.CASES["SQL"] if case not in queries.ENDLESS])
def test_a_query(sql: Sql, case: Case) -> None:
    check(case, sql.rows)


def test_queries_without_end_reach_their_limits_and_disturb_no_other(tmp_path: Path) -> None:
    """In one test: each of them ends its worker, so the workers are not those of before."""
    limits = replace(LIMITS, seconds=SHORT_SECONDS)
    sizes = {"memory": limits.memory_bytes, "seconds": limits.seconds, "rows": limits.rows}
    with engine_over(tmp_path, limits) as sql:
        before = _resident_bytes()
        ended = threading.Event()
        answers: list[object] = []

        def ask() -> None:
            while not ended.wait(0.05):
                with contextlib.suppress(QueryLimit):
                    answers.append(sql.rows('select sum(v) as total from demo."a.csv"'))

        other = threading.Thread(target=ask)
        other.start()
        try:
            for case in queries.ENDLESS:
                with pytest.raises(QueryLimit) as raised:
                    sql.rows(case.given)
                assert raised.value.limit in case.says.split(" or "), case.name
                assert raised.value.size == sizes[raised.value.limit]
            until(lambda: answers)
        finally:
            ended.set()
            other.join()
        assert all(answer == [{"total": 61.5}] for answer in answers)
        assert _resident_bytes() - before < MEMORY_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
