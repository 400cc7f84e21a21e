"""The suite `sql`, small: all contenders answer, and a wrong answer is a failure."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.sql import suite


def test_all_contenders_give_the_right_answers(tmp_path: Path) -> None:
    screen = io.StringIO()
    options = Options("unused", True, 1, tmp_path / "sql.csv", Console(file=screen, width=200))
    assert suite.run(options, rows=2000) == 0
    result = pd.read_csv(tmp_path / "sql.csv")
    assert set(result["task"]) == {suite.AGGREGATE, suite.FIRST, suite.FETCH, suite.AT_ONCE}
    assert result["median"].gt(0).all() and len(result) == 9
    assert screen.getvalue().count(" at most ") == len(suite.TARGETS)


def test_a_wrong_answer_is_a_failure() -> None:
    assert suite.timed(suite.expect(1, lambda: 2))["error"] == "ValueError: 2, not 1"
    assert suite.timed(suite.expect(1, lambda: 1))["error"] == ""
