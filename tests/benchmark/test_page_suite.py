"""The suite `page`: every viewer gets its messages, one that was skipped is counted, and a small run works."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
from rich.console import Console

from fastflight_benchmark.options import Options
from fastflight_benchmark.suites import page


def test_a_skipped_message_is_seen_by_its_number() -> None:
    seen = page.Seen()
    for tick in (7, 8, 12):
        seen.take(f'{{"tick": {tick}}}')
    assert (seen.ticks, seen.skipped) == (3, 3)


def test_a_viewer_that_starved_in_one_run_of_three_is_not_forgotten() -> None:
    common = {"boards": 10, "viewers": 100, "seconds": 10.0, "error": "", "server_cores": 0.1}
    runs = [{"run": run, "min_ticks": least, "skipped": 100 - least} for run, least in ((1, 100), (2, 40), (3, 100))]
    result = page.summarize(pd.DataFrame([common | run for run in runs], columns=page.COLUMNS))
    assert result[["min_ticks", "skipped", "server_cores"]].values.tolist() == [[40, 60, 0.1]]
    screen = io.StringIO()
    page.show(Options("unused", False, 3, Path("unused"), Console(file=screen, width=200)), result)
    assert screen.getvalue().rstrip().endswith("under 1 core: missed")


def test_a_small_run_counts_for_each_viewer(tmp_path: Path) -> None:
    screen, path = io.StringIO(), tmp_path / "page.csv"
    options = Options("unused", True, 1, path, Console(file=screen, width=200))
    assert page.run(options, page.Scope((2,), (3,), 2.0)) == 0
    (row,) = pd.read_csv(path).to_dict("records")
    assert (row["boards"], row["viewers"]) == (2, 3)
    assert row["min_ticks"] > 0 and row["kb_per_second"] > 0
    assert "a quick run" in screen.getvalue()
