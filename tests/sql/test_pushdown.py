"""What is read from plans: columns and ranges."""

from __future__ import annotations

from typing import Any

import pytest

from fastflight.sql.pushdown import Narrowing, narrowing_of

TABLE = ("server", "demo", "a b.csv")
NAME = '"server".demo."a b.csv"'
COLUMNS = ("seq", "time", "data")


def scan(filters: Any = (), projections: Any = ()) -> dict[str, Any]:
    return {"name": "SEQ_SCAN", "extra_info": {"Table": NAME, "Filters": filters, "Projections": projections}}


def narrowed(*scans: dict[str, Any], count: int = 1) -> Narrowing:
    plan = [{"name": "JOIN", "children": list(scans), "extra_info": {}}]
    return narrowing_of(TABLE, count, plan, plan, COLUMNS)


def seqs(*filters: str) -> tuple[int | None, int | None]:
    found = narrowed(scan(list(filters)))
    return found.from_seq, found.to_seq


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["(seq >= 5)"], (5, None)),
        (["((seq > 5) AND (seq < 10))"], (6, 9)),
        (["(optional: (seq >= 1) AND optional: (seq <= 3))"], (1, 3)),
        (["(seq = 7)"], (7, 7)),
        (["(seq >= 5)", "(seq >= 8)", "(direction = 'rx')"], (8, None)),
        (["((seq = 5) OR (seq = 7))"], (None, None)),
        (["((seq >= 5) AND (direction = 'x'))"], (None, None)),
        (["(data = ' AND (seq >= 5)')"], (None, None)),
        (["optional: Dynamic Filter (seq)"], (None, None)),
        (["(seq >= -5)"], (None, None)),
    ],
)
def test_comparisons_that_hold_for_all_rows(filters: list[str], expected: tuple[int | None, int | None]) -> None:
    assert seqs(*filters) == expected


def test_times_are_in_microseconds() -> None:
    found = narrowed(scan("(time > '1970-01-01 00:00:01.5+00'::TIMESTAMP WITH TIME ZONE)"))
    assert (found.from_time, found.to_time, found.from_seq) == (1_500_001, None, None)


def test_two_scans_need_what_either_needs() -> None:
    found = narrowed(scan("(seq < 5)", ["data"]), scan("((seq > 2) AND (seq < 9))", ["seq"]), count=2)
    assert (found.from_seq, found.to_seq, found.columns) == (None, 8, ["seq", "data"])


@pytest.mark.parametrize(
    ("nodes", "limit"),
    [
        ([("LIMIT", {"Limit": "10"})], 10),
        ([("PROJECTION", {}), ("STREAMING_LIMIT", {"Limit": "10", "Offset": "5"}), ("PROJECTION", {})], 15),
        ([("LIMIT", {"Limit": "10"}), ("LIMIT", {"Limit": "3"})], 3),
        ([("LIMIT_PERCENT", {"Limit": "10.0%"})], None),
        ([("LIMIT", {"Limit": "10"}), ("UNNEST", {})], None),
        ([("PROJECTION", {})], None),
    ],
)
def test_a_limit_is_that_of_the_scan_below_it(nodes: list[tuple[str, dict[str, str]]], limit: int | None) -> None:
    node = scan(projections="seq")
    del node["extra_info"]["Filters"]
    for name, info in reversed(nodes):
        node = {"name": name, "children": [node], "extra_info": info}
    assert narrowing_of(TABLE, 1, [node], [node], COLUMNS).limit == limit
    filtered = scan("(seq > 5)", "seq")
    limited = [{"name": "LIMIT", "children": [filtered], "extra_info": {"Limit": "10"}}]
    assert narrowing_of(TABLE, 1, limited, limited, COLUMNS).limit is None


def test_fewer_scans_than_names_say_nothing() -> None:
    assert narrowed(scan("(seq < 5)", ["data"]), count=2) == Narrowing()


def test_one_column_is_needed_to_count_rows() -> None:
    assert narrowed(scan((), "")).columns == ["seq"]
