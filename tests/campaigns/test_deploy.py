"""A board that loses its power in a deployment starts the old program or the new one, as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.deploy import PoweredBoard, campaign, write_program

pytest.importorskip("pty", reason="the board is on a pseudo-terminal")

CUTS = 4
SEED = 3


def test_a_board_with_parts_of_two_versions_is_noticed(tmp_path: Path) -> None:
    write_program(tmp_path, 1)
    (tmp_path / "part2.py").write_text("V = 2\n")
    assert PoweredBoard(tmp_path).start() == ["1", "1", "2", "1"]


def test_every_start_is_of_one_version(tmp_path: Path) -> None:
    counted, wrong = campaign(tmp_path, CUTS, SEED)
    assert wrong == []
    assert counted.total() == CUTS and counted["not cut"] < CUTS
