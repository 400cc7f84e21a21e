"""The suite `bridge` with little of everything: bridges as processes, ended afterwards; its files, screen and plots."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest
from rich.console import Console

from fastflight_benchmark import plot_benchmark_results
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.bridge import idle, traffic, visits, whole
from fastflight_benchmark.suites.bridge import suite as bridge

SCOPE = bridge.Scope(
    visits=dict.fromkeys((*visits.OURS, visits.PYSERIAL), 1) | {visits.MPREMOTE: 0},
    pairs=0,
    round_trips=5,
    bulk={traffic.TERMINAL: 20_000, traffic.SOCKET: 20_000},
    whole=200_000,
    idle_seconds=0.1,
)
WAYS = (traffic.DIRECT[traffic.SOCKET], traffic.Way("fastflight", "rfc2217", traffic.SOCKET))


@pytest.mark.skipif(sys.platform == "win32", reason="the device without a bridge is a pseudo-terminal")
@pytest.mark.usefixtures("fonts")
def test_all_parts_are_measured_saved_shown_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = psutil.Process().children(recursive=True)  # what multiprocessing keeps of other tests
    monkeypatch.setattr(traffic, "WAYS", WAYS)
    monkeypatch.setattr(idle, "BRIDGES", 1)
    monkeypatch.setattr(idle, "SETTLE_SECONDS", 0.0)
    path, screen = tmp_path / "bridge.csv", io.StringIO()

    assert bridge.run(Options("unused", True, 1, path, Console(file=screen, width=200)), SCOPE) == 0

    result, raw = pd.read_csv(path), pd.read_csv(tmp_path / "bridge_raw.csv")
    assert list(result["part"].unique()) == ["connect", "round trip", "bulk", "whole", "idle"]
    assert set(raw["client"]) == {*visits.OURS, "pyserial", "bare", "fastflight"}
    assert raw["error"].isna().all()
    assert raw[raw["work"] == whole.WRONG]["value"].tolist() == [0, 0]
    assert (raw[raw["part"] == "bulk"]["value"] > 0).all()
    assert "there and back" in screen.getvalue()
    assert [child for child in psutil.Process().children(recursive=True) if child not in before] == []
    drawn = plot_benchmark_results.draw(path, tmp_path)
    assert [picture.name for picture in drawn] == ["bridge_visits.png", "bridge_round_trips.png", "bridge_bulk.png"]


def test_bytes_that_are_not_what_was_sent_are_counted() -> None:
    block = whole.hard_block(4)
    assert len(block) == whole.BLOCK_BYTES
    assert block == whole.hard_block(4)
    assert block.count(b"\xff") > len(block) // 20
    assert whole.differing(b"abcd", b"abcd") == 0
    assert whole.differing(b"abcd", b"xbcy") == 2
