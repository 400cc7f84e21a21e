"""The sample files: the same every time, and as documented."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import struct
from datetime import datetime
from pathlib import Path

from fastflight.simulator import samples


def test_readings() -> None:
    rows = list(csv.DictReader(io.StringIO(samples.readings().decode())))
    assert len(rows) == 10_000
    assert list(rows[0]) == ["time", "temperature", "humidity", "pressure", "battery"]
    times = [datetime.fromisoformat(row["time"]) for row in rows]
    steps = {(later - earlier).total_seconds() for earlier, later in zip(times, times[1:], strict=False)}
    assert min(steps) == 10
    assert len(steps) > 5, "stretches are missing"
    empty = sum(not row["temperature"] for row in rows)
    assert 10 < empty < 100
    assert all(float(row["pressure"]) and float(row["battery"]) for row in rows)


def test_events() -> None:
    rows = [json.loads(line) for line in samples.events().decode().splitlines()]
    assert len(rows) == 500
    assert {row["event"] for row in rows} == {"boot", "button", "wifi", "error", "upload"}
    assert {row["level"] for row in rows} == {"info", "warning", "error"}
    assert {type(row["value"]) for row in rows} == {int, type(None)}


def test_log() -> None:
    rows = list(struct.iter_unpack("<IhHB", samples.log()))
    assert len(rows) == 2_000
    assert [row[0] for row in rows[:3]] == [0, 250, 500]
    assert all(1000 < row[1] < 3000 and row[3] & 0x7C == 0 for row in rows)


def test_the_bytes_are_the_same_every_time() -> None:
    # A change here changes what README and the notebook show.
    digests = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in samples.contents().items()}
    assert digests == {
        "readings.csv": "3396807121651412",
        "events.jsonl": "8c4398838fcb2180",
        "log.bin": "fa6d0a90557496e5",
        "main.py": digests["main.py"],
    }


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    samples.write_samples(str(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled_and_made(tmp_path: Path) -> None:
    samples.write_samples(str(tmp_path / "new"))
    assert sorted(entry.name for entry in (tmp_path / "new").iterdir()) == sorted(samples.contents())
