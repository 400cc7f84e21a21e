"""Patterns of SQL: which names they match, and that none takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.errors import RequestError
from fastflight.service.requests import MAX_GLOB_CHARACTERS
from fastflight.sql.names import like
from tests.support.sql_engine import engine_over
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("a.csv", "a.csv", True), ("axcsv", "a.csv", False), ("a_b", r"a\_b", True), ("axb", r"a\_b", False),
        ("a%", r"a\%", True), ("ab", r"a\%", False), ("a\\b", r"a\\b", True), ("[ab]*?", "[ab]*?", True),
        ("a", "[ab]*?", False), ("a\nb", "a%", True), ("", "", True), ("a", "", False), ("A", "a", False),
    ],
)  # fmt: skip
def test_patterns_are_those_of_sql(name: str, pattern: str, matches: bool) -> None:
    assert like(name, pattern) is matches


def test_a_hostile_pattern_takes_no_time_and_a_long_one_is_refused() -> None:
    assert not like("a" * 255, "%a" * 250 + "%b")
    with pytest.raises(RequestError, match="at most"):
        like("a", "%" * (MAX_GLOB_CHARACTERS + 1))


@pytest.mark.parametrize("device", ["Temp", "memory", "main"])
def test_a_device_may_have_the_name_of_a_database(tmp_path: Path, device: str) -> None:
    with engine_over(tmp_path, device=device) as sql:
        query = f"select sql_name from fastflight.tables where schema = '{device}'"
        # On a busy computer a board may be listed too late.
        names = until(lambda: len(rows := sql.rows(query)) == 6 and [row["sql_name"] for row in rows])
        for name in (name for name in names if "bad" not in name and not name.endswith("gaps")):
            assert sql.rows(f"select count(*) > 0 as filled from {name}") == [{"filled": True}], name
