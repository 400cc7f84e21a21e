"""The suite `sql`, small: all contenders answer, and a wrong answer is a failure."""

from __future__ import annotations

import io
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.sql import suite


@pytest.fixture(scope="module", autouse=True)
def _adbc_has_run() -> None:
    """The driver opens descriptors when it first connects, and keeps them."""
    with adbc.connect("grpc+tcp://127.0.0.1:1", autocommit=True) as connection, connection.cursor() as cursor:
        with pytest.raises(adbc_driver_manager.Error):
            cursor.execute("select 1")


def test_all_contenders_give_the_right_answers(tmp_path: Path) -> None:
    screen = io.StringIO()
    options = Options("unused", True, 1, tmp_path / "sql.csv", Console(file=screen, width=200))
    assert suite.run(options, rows=2000) == 0
    result = pd.read_csv(tmp_path / "sql.csv")
    assert set(result["task"]) == {suite.AGGREGATE, suite.FIRST, suite.FETCH, suite.AT_ONCE}
    assert result["median"].gt(0).all() and len(result) == 10
    assert screen.getvalue().count(" at most ") == len(suite.TARGETS)


def test_a_wrong_answer_is_a_failure() -> None:
    assert suite.timed(suite.expect(1, lambda: 2))["error"] == "ValueError: 2, not 1"
    assert suite.timed(suite.expect(1, lambda: 1))["error"] == ""
