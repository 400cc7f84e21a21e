"""A server whose clock is set while it works: rows, sessions, writes, limits and recordings go on as before.

The server is a process of its own, of which Python's clock is set (`tests.support.clock`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.client import FastFlightClient
from fastflight.client.credentials import Credentials
from fastflight.errors import Unauthenticated
from tests.campaigns.faulting.program import Program
from tests.support.clock import SettableClock

DAY, YEAR = 86_400, 365 * 86_400
JUMPS = (DAY, -DAY, 10 * YEAR, -10 * YEAR)
FLEET = """\
[recordings]
folder = "recordings"
sync_ms = 20
max_days = 1

[devices.demo]
url = "sim:?telemetry=100"
record = true
"""


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[SettableClock]:
    with SettableClock(tmp_path) as clock:
        yield clock


@pytest.fixture
def program(tmp_path: Path, clock: SettableClock) -> Iterator[Program]:
    """`serve --fleet fleet.toml`, with other options beside it: not yet started."""
    (tmp_path / "fleet.toml").write_text(FLEET)
    arguments = ["serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(tmp_path / "fleet.toml"), "--http", "0"]
    environment = {**os.environ, **clock.environment}
    started = Program("server", arguments, [r"(grpc://127.0.0.1:\d+)"], tmp_path / "log", environment)
    yield started
    assert started.stop() == 0
    assert started.complaints() == []


def test_whatever_the_clock_says_all_goes_on(tmp_path: Path, clock: SettableClock, program: Program) -> None:
    (location,) = program.start()
    (tmp_path / "here.bin").write_bytes(bytes(range(256)) * 8)
    with FastFlightClient(location) as client:
        for jump in (*JUMPS, 0):
            numbers: list[int] = []
            with client.session("demo", limit_seconds=0.5) as timed:
                with client.session("demo", limit_rows=40) as rows:
                    for batch in rows:
                        if not numbers:
                            clock.set(jump)
                        numbers += batch.column("seq").to_pylist()
                # Limits in seconds are of a clock that nobody can set; "since" is of the one that was set.
                for _ in timed:
                    pass
            assert numbers == list(range(numbers[0], numbers[0] + 40)) and rows.gaps == []
            assert timed.summary["ended"] == "limit reached"
            with client.session("demo", since_seconds=5, limit_rows=1) as rows:
                assert sum(batch.num_rows for batch in rows) == 1
            client.put_file("demo", "/there.bin", tmp_path / "here.bin")
            client.get_file("demo", "/there.bin", tmp_path / "back.bin")
            assert (tmp_path / "back.bin").read_bytes() == (tmp_path / "here.bin").read_bytes()
            (now,) = client.recordings()
            assert now.state == "recording" and now.next_seq >= numbers[-1] - 200
            assert client.health()["status"] == "serving"
        reached = max(numbers)
        with client.recording("demo", to_seq=reached) as rows:
            kept = [number for batch in rows for number in batch.column("seq").to_pylist()]
        assert kept == list(range(reached + 1)) and rows.gaps == []
        # Rows carry the time that the clock said, and are found by it.
        past = datetime.now(UTC) - timedelta(days=365)
        with client.recording("demo", to_time=past) as rows:
            found = [time for batch in rows for time in batch.column("time").to_pylist()]
        assert found and max(found) < past


def test_tokens_end_by_the_clock(tmp_path: Path, clock: SettableClock, program: Program) -> None:
    now = datetime.now(UTC)
    token, text = issued("reader", scopes(["read:demo"]), now, now + timedelta(days=1))
    (tmp_path / "tokens.json").write_bytes(Book((token,)).encode())
    (tmp_path / "tokens.json").chmod(0o600)
    program.arguments += ["--tokens", str(tmp_path / "tokens.json")]
    (location,) = program.start()
    with FastFlightClient(location, credentials=Credentials(text)) as client:
        assert client.ls("demo")
        clock.set(2 * DAY)
        with pytest.raises(Unauthenticated):
            client.ls("demo")
        clock.set(-DAY)
        assert client.ls("demo")
