"""Patterns of SQL: which names they match, and that none takes long."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight.service.requests import MAX_GLOB_CHARACTERS
from fastflight.sql.names import like


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
