"""The figures that README and the concepts quote are those of docs/results."""

from __future__ import annotations

import pandas as pd
import pytest

from fastflight_benchmark import targets
from fastflight_benchmark.performance_page import DOCS, Results
from fastflight_benchmark.suites.flight import summary

README = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
MPREMOTE = (DOCS / "concepts" / "mpremote.md").read_text(encoding="utf-8")
ASYNC = " ".join((DOCS / "concepts" / "async.md").read_text(encoding="utf-8").split())
BYTES = 10_000
WORDS = {"download": "from the board", "upload": "to the board"}


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(DOCS / "results")


def cell(results: Results, line: int, operation: str) -> pd.Series:
    """The transfer of a small file of random bytes."""
    frame = results.frame("transfer")
    chosen = frame[
        (frame["kind"] == "steady")
        & (frame["line"] == line)
        & (frame["content"] == "random")
        & (frame["size"] == BYTES)
        & (frame["operation"] == operation)
        & (frame["path"] == "sync")
    ]
    assert len(chosen) == 1
    return chosen.iloc[0]


@pytest.mark.parametrize("operation", WORDS)
@pytest.mark.parametrize("line", [115_200, 921_600])
def test_the_comparison_with_mpremote(results: Results, line: int, operation: str) -> None:
    row = cell(results, line, operation)
    times = (10 * BYTES / line, row["seconds"], row["mpremote_seconds"], row["mpremote_pty_seconds"])
    assert f"| {line} baud | {WORDS[operation]} | {' | '.join(f'{time:.2f}' for time in times)} |" in MPREMOTE


@pytest.mark.parametrize("line", [115_200, 921_600])
def test_readme_quotes_the_comparison(results: Results, line: int) -> None:
    row = cell(results, line, "download")
    assert f"{row['seconds']:.2f} s at {line} baud; mpremote takes {row['mpremote_seconds']:.2f} s" in README


def test_the_comparison_of_sync_and_async(results: Results) -> None:
    compared = summary.compare(results.frame("flight"))
    average, worst, *_ = targets.flight(compared, results.frame("flight", "ratios"))
    requests = results.frame("requests")
    small = requests[requests["operation"] == "do_get"].groupby("mode")["per_second"].max()
    assert average.reached is not None and worst.reached is not None
    # The page says which cell is the worst.
    assert "10,000 rows, 64 readers" in worst.title
    assert f"async is ahead by {average.reached:.1f} % on average" in ASYNC
    assert f"async is behind by {-worst.reached:.1f} %" in ASYNC
    assert f"{small['sync']:,.0f} per second sync, {small['async']:,.0f} async" in ASYNC
    assert f"{average.reached:.1f} % faster on average" in README
    assert f"{small['async']:,.0f} instead of {small['sync']:,.0f} per second" in README
