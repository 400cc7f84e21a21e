"""The short form of the campaign: some of its steps, and a check that it would notice."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fastflight.app.local_board import LocalBoard
from tests.campaigns.collectors import AFTERMATHS, CollectorsOutcome, Trial, run


@pytest.mark.parametrize("after", AFTERMATHS)
def test_no_line_is_lost_or_stored_twice(tmp_path: Path, after: str) -> None:
    outcome = run(tmp_path, 4 if after == "other" else 2, (after,))
    assert (outcome.lost, outcome.twice) == ([], [])
    assert outcome.trials >= 8


@pytest.mark.parametrize(
    ("parts", "lost", "twice"),
    [
        ({"a/1.csv": range(1, 13)}, False, False),
        ({"a/1.csv": range(1, 7), "b/1.csv": range(7, 13)}, False, False),
        ({"a/1.csv": range(1, 12)}, True, False),
        ({"a/1.csv": range(1, 13), "b/1.csv": range(12, 13)}, False, True),
        ({"a/1.csv": range(1, 13), "b/1.csv": range(13, 14)}, False, True),
    ],
)
def test_lost_and_repeated_lines_are_noticed(tmp_path: Path, parts: dict[str, range], lost: bool, twice: bool) -> None:
    files = tmp_path / "board"
    files.mkdir()
    with closing(LocalBoard(f"sim:?files={files}")) as board:
        trial, outcome = Trial(tmp_path, board, files), CollectorsOutcome()
    (files / "log.csv").unlink()
    for name, numbers in parts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(f"{number},21.5\n" for number in numbers))
    trial.check("again", outcome)
    assert (bool(outcome.lost), bool(outcome.twice)) == (lost, twice)
