"""The suite `beside`: a small copy both ways beside each program, and what its rows become."""

from __future__ import annotations

import pandas as pd
import pytest

from fastflight_benchmark.run_benchmark import SUITES
from fastflight_benchmark.suites import beside
from fastflight_benchmark.suites.beside import DOWNLOAD, PROGRAMS, UPLOAD


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_is_copied_both_ways_and_no_row_is_missing(program: str) -> None:
    rows = beside.visit(program, 921_600, 2_000)
    assert [(row["operation"], row["error"], row["missing"]) for row in rows] == [(UPLOAD, "", 0), (DOWNLOAD, "", 0)]
    assert all(row["of_line"] > 0 and row["longest_stop_ms"] >= 0 for row in rows)


def test_the_table_of_a_page() -> None:
    rows = [("aiorepl", 115_200, UPLOAD, 0.384, 21.4), ("aiorepl", 115_200, DOWNLOAD, 0.6, 134.0)]
    result = pd.DataFrame(rows, columns=["beside", "line", "operation", "of_line", "longest_stop_ms"])
    assert beside.markdown(result).splitlines()[2:] == ["| aiorepl | 115200 | 0.38, 21 ms | 0.60, 134 ms |"]


def test_the_suite_can_be_run() -> None:
    assert SUITES["beside"] is beside.run
