"""docs/scale.md has the figures of docs/results, and what is computed from them."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fastflight_benchmark import machine, output
from fastflight_benchmark.performance_page import DOCS, Results, filled
from fastflight_benchmark.scale_page import PAGE, TABLES, needs
from fastflight_benchmark.suites.cluster import suite

SCALED = {
    "not placed": 0,
    "not settled": 0,
    "placed after": 6.0,
    "rows printed": 100,
    "rows recorded": 100,
    "rows": 100.0,
    "idle": 20.0,
    "recorded after the last row": 1.0,
    "recordings that differ": 0,
    "rows expected by viewers": 10,
    "rows seen by viewers": 10,
    "viewers with errors": 0,
    "row to viewer, median": 500.0,
    "without owner at the end": 0,
    "servers for each board": 700.0,
    "memory of servers for each board": 100.0,
    "NATS": 0.2,
    "stream KV_ff-owners": 4.0,
    "stream fastflight": 1000.0,
    "stream fastflight, bytes": 400_000.0,
}
LATE = {"row to viewer, median": 1500.0}
PLACED = {
    "servers that join, and that die": 20,
    "moved at joins": 998,
    "moved at joins, by the least possible": 0.998,
    "moved at deaths": 1000,
    "moved at deaths, by the least possible": 1.0,
    "devices of the fullest server, by the mean": 1.1,
}
RESULT = [
    *((suite.REQUESTS, 16, servers, 0, "requests of 10 rows", 1500.0, "1/s") for servers in (0, 4)),
    *((suite.SCALE, 1000, 4, 10, what, value, "unit") for what, value in SCALED.items()),
    *((suite.SCALE, 1500, 4, 10, what, value, "unit") for what, value in {**SCALED, **LATE}.items()),
    *((suite.SCALE, 2000, 4, 10, what, value, "unit") for what, value in {**SCALED, "rows recorded": 99}.items()),
    *((suite.SILENT, 5000, 4, 0, what, value, "unit") for what, value in {"placed after": 7.0, "servers": 0.2}.items()),
    *((suite.PLACEMENT, 1_000_000, 1000, 0, what, value, "unit") for what, value in PLACED.items()),
]
DESCRIPTION = {"machine": machine.describe(), "load": 3.5}
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_kept_results() -> None:
    assert filled(TEXT, Results(DOCS / "results"), TABLES) == TEXT


def test_each_table_is_shown_once_and_is_not_empty() -> None:
    assert sorted(re.findall(r"<!-- table: (\S+) -->\n", TEXT)) == sorted(TABLES)
    assert not re.search(r"-->\n<!-- end", TEXT)


def test_every_table_can_be_made_from_a_result(tmp_path: Path) -> None:
    output.save(tmp_path / "cluster.csv", pd.DataFrame(RESULT, columns=suite.COLUMNS), {}, DESCRIPTION)
    made = filled(TEXT, Results(tmp_path), TABLES)
    assert "Not measured yet" not in made
    assert "- 1,000 devices: 100 of 100 rows recorded" in made and "**not all there**" in made
    assert "as with 1,000 on 4 servers" in made and "0.9980 of the least possible" in made
    assert "3.5 other programs" in made


def test_without_a_cell_that_worked_nothing_is_computed(tmp_path: Path) -> None:
    failed = [row for row in RESULT if row[1] != 1000]  # the others are late, or have lost a row
    output.save(tmp_path / "cluster.csv", pd.DataFrame(failed, columns=suite.COLUMNS), {}, DESCRIPTION)
    assert "nothing to compute from" in filled(TEXT, Results(tmp_path), TABLES)


def test_the_text_around_the_tables_has_no_figures_that_nobody_measured() -> None:
    prose = re.sub(r"<!-- table.*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)|`[^`]*`|\[\d{4}\]", "", prose)
    assert not re.findall(r"\d[\d,.]* (?:MB|GB|TB|cores?|ms|us|messages|rows) ", prose)


def test_what_a_million_boards_need_grows_with_what_a_board_needs() -> None:
    found = pd.Series(SCALED)
    needed = needs(found, 1000, 4)
    assert needed["boards of a server"] == pytest.approx(1000) and needed["servers"] == pytest.approx(1000)
    assert needed["memory of a server for its boards, GB"] == pytest.approx(0.1024)
    assert needed["renewals of leases per second"] == pytest.approx(1000)
    assert needed["renewals per second that all servers hear"] == pytest.approx(1_000_000)
    assert needed["recordings, MB/s with 3 copies"] == pytest.approx(1200)
    assert needed["disk, TB a day with 3 copies"] == pytest.approx(103.68)
    assert needed["cores of NATS"] == pytest.approx(200)
