"""The suite `relay`: every transfer is checked to its last byte, ratios are those of rounds, and a small run works."""

from __future__ import annotations

import io
import json
import socket
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight.errors import TransportError
from fastflight_benchmark.options import Options
from fastflight_benchmark.plot_benchmark_results import draw
from fastflight_benchmark.suites.relay import client
from fastflight_benchmark.suites.relay import suite as relay
from fastflight_benchmark.suites.relay.content import BLOCK_BYTES, Checked, stream
from fastflight_benchmark.suites.relay.measuring import COLUMNS, CONTENDERS, Scope


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_lost_doubled_or_changed_is_seen(whole: bool) -> None:
    content = memoryview(stream(2 * BLOCK_BYTES))
    pieces = [content[at : at + 100_000] for at in range(0, len(content), 100_000)]
    checked = Checked(whole=whole)
    checked.begin()
    for piece in pieces:
        checked.take(piece)
    assert (checked.size, checked.pieces) == (len(content), len(pieces))
    changed = bytearray(pieces[1])
    changed[0] ^= 1
    for wrong in (pieces[2], pieces[0], pieces[1][1:], memoryview(changed)):
        checked.begin()
        checked.take(pieces[0])
        with pytest.raises(TransportError, match="other bytes"):
            checked.take(wrong)


def test_a_whole_comparison_sees_the_middle_of_a_piece() -> None:
    changed = bytearray(stream(100_000))
    changed[50_000] ^= 1
    with pytest.raises(TransportError, match="other bytes"):
        Checked(whole=True).take(memoryview(changed))


@pytest.mark.parametrize("kind", ["raw", "ours"])
def test_a_transfer_that_stands_still_is_an_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = f"127.0.0.1:{silent.getsockname()[1]}"
        (said,) = client.answers(iter([json.dumps(asdict(client.Job(kind, there, there, 10, 10, 10, whole=True)))]))
    assert "BlockingIOError" in json.loads(said)["error"]


def test_a_ratio_is_that_of_a_round() -> None:
    cell = {
        "size_mb": 10,
        "chunk_kb": 64,
        "read_kb": 128,
        "frames": 80,
        "mean_frame": 131072.0,
        "cpu": 0.5,
        "error": "",
    }
    rates = {1: (100.0, 50.0, 40.0, 10.0), 2: (100.0, 80.0, 40.0, 40.0), 3: (100.0, 40.0, 40.0, 20.0)}
    raw = pd.DataFrame(
        [
            cell | {"contender": name, "run": run, "mbps": rate}
            for run, each in rates.items()
            for name, rate in zip(CONTENDERS, each, strict=True)
        ],
        columns=COLUMNS,
    )
    (row,) = relay.summarize(raw).to_dict("records")
    assert (row["rounds"], row["to_plain"], row["to_library"], row["to_raw"]) == (3, 0.8, 2.0, 0.4)
    assert list(relay.ratios(raw, "plain")) == [0.8, 0.5, 1.0]


@pytest.mark.usefixtures("fonts")
def test_a_small_run_measures_all_and_can_be_drawn(tmp_path: Path) -> None:
    screen, path = io.StringIO(), tmp_path / "relay.csv"
    options = Options("unused", True, 1, path, Console(file=screen, width=200))
    assert relay.run(options, Scope(sizes=(1,), chunks=(16,), reads=(16, 128), rounds=1)) == 0
    rows = pd.read_csv(path).to_dict("records")
    assert [(row["read_kb"], row["rounds"]) for row in rows] == [(16, 1), (128, 1)]
    assert all(row["mean_frame"] <= row["read_kb"] * 1024 and row["to_plain"] > 0 for row in rows)
    assert "not measured here" in screen.getvalue()
    (drawn,) = draw(path, tmp_path)
    assert drawn.stat().st_size > 10_000
