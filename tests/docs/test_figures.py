"""The figures that README and the concepts quote are those of docs/results."""

from __future__ import annotations

from statistics import fmean

import pytest

from fastflight_benchmark.performance_page import DOCS, gains, stored

README = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
MPREMOTE = (DOCS / "concepts" / "mpremote.md").read_text(encoding="utf-8")
ASYNC = " ".join((DOCS / "concepts" / "async.md").read_text(encoding="utf-8").split())
BYTES = 10_000
WORDS = {"download": "from the board", "upload": "to the board"}


def seconds(line: int, operation: str, contender: str) -> float:
    """The transfer of a small file of random bytes."""
    labels = {"part": "file", "baud": line, "content": "random", "bytes": BYTES, "operation": operation}
    (row,) = stored("transfer").of("time", contender=contender, **labels)  # type: ignore[arg-type]
    return row.median


@pytest.mark.parametrize("operation", WORDS)
@pytest.mark.parametrize("line", [115_200, 921_600])
def test_the_comparison_with_mpremote(line: int, operation: str) -> None:
    times = (10 * BYTES / line, *(seconds(line, operation, name) for name in ("sync", "mpremote", "mpremote-pty")))
    assert f"| {line} baud | {WORDS[operation]} | {' | '.join(f'{time:.2f}' for time in times)} |" in MPREMOTE


@pytest.mark.parametrize("line", [115_200, 921_600])
def test_readme_quotes_the_comparison(line: int) -> None:
    ours, theirs = (seconds(line, "download", name) for name in ("sync", "mpremote"))
    assert f"{ours:.2f} s at {line} baud; mpremote takes {theirs:.2f} s" in README


def test_the_comparison_of_sync_and_async() -> None:
    found = gains()
    average = fmean(gain for (_, rows, clients), gain in found.items() if rows >= 1_000 and clients <= 10)
    worst = min(found, key=lambda cell: found[cell])
    small = {
        name: max(row.median for row in stored("requests").of("rate", operation="do_get", contender=name))
        for name in ("sync", "async")
    }
    # The page says which cell is the worst.
    assert worst == (10, 5_000, 64)
    assert f"async is ahead by {average:.1f} % on average" in ASYNC
    assert f"async is behind by {-found[worst]:.1f} %" in ASYNC
    assert f"{small['sync']:,.0f} per second sync, {small['async']:,.0f} async" in ASYNC
    assert f"{average:.1f} % faster on average" in README
    assert f"{small['async']:,.0f} instead of {small['sync']:,.0f} per second" in README
