"""The suite `page`: every viewer gets its messages, one that was skipped is counted, and a small run works."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
from rich.console import Console

from fastflight_benchmark.suites import Options, page


def test_a_skipped_message_is_seen_by_its_number() -> None:
    seen = page.Seen()
    for tick in (7, 8, 12):
        seen.take(f'{{"tick": {tick}}}')
    assert (seen.ticks, seen.skipped) == (3, 3)


def test_a_small_run_counts_for_each_viewer(tmp_path: Path) -> None:
    screen, path = io.StringIO(), tmp_path / "page.csv"
    options = Options("unused", True, 1, path, Console(file=screen, width=200))
    assert page.run(options, page.Scope((2,), (3,), 2.0)) == 0
    (row,) = pd.read_csv(path).to_dict("records")
    assert (row["boards"], row["viewers"]) == (2, 3)
    assert row["min_ticks"] > 0 and row["kb_per_second"] > 0
    assert "a quick run" in screen.getvalue()
