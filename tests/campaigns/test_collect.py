"""The short form of the campaign: a few kills, and a check that it would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.campaigns import collect
from tests.campaigns.collect import Bench, CollectOutcome, check


def test_no_line_is_lost_or_stored_twice(tmp_path: Path) -> None:
    output = tmp_path / "outcome.json"
    script = [sys.executable, "-m", collect.__name__, "--kills", "3", "--output", str(output)]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcome = json.loads(output.read_text())
    assert (outcome["lost"], outcome["twice"], outcome["unwritten"]) == (0, 0, 0)
    assert outcome["lines"] > 0


def test_lost_and_repeated_lines_are_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "stored" / "board" / "log.csv"
    folder.mkdir(parents=True)
    (folder / "0000001.csv").write_text("000001,000000,21.5\n000001,000000,21.5\n000001,000002,21.5\n")
    (tmp_path / "written.csv").write_text("000001,000000,21.5\n000001,000001,21.5\n000001,000002,21.5\n")
    outcome = CollectOutcome()
    check(cast(Bench, SimpleNamespace(stored=tmp_path / "stored", files=tmp_path)), outcome)
    assert (outcome.lost, outcome.twice, outcome.clean) == (1, 1, False)
