"""The short form of the campaign: a few kills, and a check that it would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.log import Log, NumberedRows, Store
from tests.campaigns import kills, server_kills
from tests.campaigns.kills import LOGS, SCHEMA, KillOutcome, batch_of, check


def test_nothing_that_was_acknowledged_is_lost_to_a_few_kills(tmp_path: Path) -> None:
    # In a process of its own: what starts the processes keeps pipes for as long as it lives.
    script = [sys.executable, "-m", kills.__name__, "--runs", "3", "--output", str(tmp_path / "outcome.json")]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["runs"], outcome["lost"], outcome["wrong"]) == (3, 0, 0)
    assert outcome["acknowledged"] > 0


def test_lost_and_wrong_rows_are_noticed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        log = store.open("a", SCHEMA)
        log.append(batch_of("a", 0, 5)).result()
        log.append(batch_of("a", 100, 3).set_column(0, SCHEMA.field(0), pa.array([0] * 3, SCHEMA.field(0).type)))
    outcome = KillOutcome()
    outcome.following["a"] = 10
    check(tmp_path, outcome, dict.fromkeys(LOGS, 0))
    assert (outcome.lost, outcome.wrong) == (2, 3)
    assert not outcome.clean


def test_rows_that_come_twice_do_not_make_up_for_lost_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        store.open("a", SCHEMA).append(batch_of("a", 0, 8)).result()
    given = [NumberedRows(first, batch_of("a", first, 3)) for first in (0, 0, 5)]
    monkeypatch.setattr(Log, "read", lambda log, range_: iter(given))
    outcome = KillOutcome()
    check(tmp_path, outcome, dict.fromkeys(LOGS, 0))
    assert (outcome.lost, outcome.wrong) == (2, 3)


def test_a_process_that_ends_by_itself_is_no_kill(tmp_path: Path) -> None:
    with Store(tmp_path / "logs") as store:
        log = store.open("a", pa.schema([SCHEMA.field("time")]))  # which the process would open with another schema
        log.append(batch_of("a", 0, 1).select(["time"])).result()
        log.trim(1).result()
    script = [sys.executable, "-m", kills.__name__, "--runs", "1", "--folder", str(tmp_path / "logs")]
    ended = subprocess.run([*script, "--output", str(tmp_path / "outcome.json")], capture_output=True, timeout=100)
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (ended.returncode, outcome["runs"], outcome["missed"]) == (1, 1, 1), ended.stderr
    assert not KillOutcome(missed=1).clean


def test_what_a_server_said_was_kept_is_replayed_by_the_next_one(tmp_path: Path) -> None:
    script = [sys.executable, "-m", server_kills.__name__, "--runs", "1", "--seed", "2"]
    ended = subprocess.run([*script, "--output", str(tmp_path / "outcome.json")], capture_output=True, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["kills"], outcome["lost"], outcome["wrong"]) == (1, 0, 0)
    assert outcome["acknowledged"] > 0 and outcome["read_bytes"] > 0


@pytest.mark.parametrize(("acknowledged", "code"), [(0, 1), (5, 0)])
def test_servers_that_kept_nothing_have_lost_nothing_and_show_nothing(
    monkeypatch: pytest.MonkeyPatch, acknowledged: int, code: int
) -> None:
    found = server_kills.ServerKillOutcome(kills=1, acknowledged=acknowledged)
    monkeypatch.setattr(server_kills, "campaign", lambda *_: found)
    monkeypatch.setattr(sys, "argv", ["server_kills.py"])
    assert server_kills.main() == code


def test_bytes_that_the_board_did_not_say_are_noticed() -> None:
    lines = server_kills.stream(7)
    whole = b"".join(next(lines) for _ in range(20))
    assert all(server_kills.said(whole[:size]) for size in (0, 1, 30, len(whole)))
    assert not any(server_kills.said(data) for data in (whole[1:], whole[:30] + whole[31:], b"x", b"\0" * 9))
