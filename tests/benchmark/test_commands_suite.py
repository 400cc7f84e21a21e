"""The suite `commands`, small: tasks are done by all tools, and a wrong outcome is seen."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.commands import suite
from fastflight_benchmark.suites.commands.tasks import MPREMOTE, TASKS, TOOLS, Task, printed


def options(tmp_path: Path, screen: io.StringIO) -> Options:
    return Options("unused", True, 1, tmp_path / "commands.csv", Console(file=screen, width=200))


def test_each_task_has_a_line_for_us_and_a_name_of_its_own() -> None:
    names = [task.name for task in TASKS]
    assert len(set(names)) == len(names)
    assert all(task.arguments(tool) for task in TASKS for tool in TOOLS if tool != MPREMOTE)


def test_tools_do_the_same_task_and_what_one_cannot_do_is_said(tmp_path: Path) -> None:
    screen = io.StringIO()
    tasks = [task for task in TASKS if task.name in ("list a folder", "a table as Parquet")]
    assert suite.run(options(tmp_path, screen), tasks) == 0
    result = pd.read_csv(tmp_path / "commands.csv").set_index(["task", "tool"])
    assert set(result.loc["list a folder"]["outcome"]) == {suite.DONE}
    assert result.loc[("a table as Parquet", MPREMOTE)]["outcome"] == suite.IMPOSSIBLE
    assert result.loc[("list a folder", MPREMOTE)]["keys"] == len("mpremote ls\n")
    assert "list a folder" in screen.getvalue()


def test_a_wrong_outcome_is_a_failure(tmp_path: Path) -> None:
    screen = io.StringIO()
    wrong = [Task(line, line, None, printed("no such file has this name")) for line in ("ls :nowhere", "ls")]
    assert suite.run(options(tmp_path, screen), wrong) == len(wrong) * (len(TOOLS) - 1)
    assert set(pd.read_csv(tmp_path / "commands.csv")["outcome"]) == {suite.WRONG, suite.IMPOSSIBLE}
