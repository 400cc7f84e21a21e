"""What keeps a server's recordings tidy, and the numbers that a server begins at."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.log import LogStatistics, Store
from fastflight.sources import recordings
from fastflight.sources.recorded_rows import KEPT_SCHEMA, kept
from fastflight.sources.recordings import RUN, Tidying, first_of_run
from fastflight.transport.tap import Chunk


def test_the_end_does_not_wait_for_compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resting = threading.Event()

    class Resting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            resting.set()
            return super().wait(timeout)

    monkeypatch.setattr(recordings, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(recordings, "REST_SECONDS", 3600.0)
    with Store(tmp_path, sync_ms=0, segment_bytes=1000) as store:
        log = store.open("demo", KEPT_SCHEMA)
        for seq in range(100):
            log.append(kept([Chunk(seq, seq * 1000, "rx", b"tiny")], {})).result()
        tidying = Tidying(store)
        monkeypatch.setattr(tidying, "_over", Resting())
        working = threading.Thread(target=tidying.tidy)
        working.start()
        resting.wait()
        tidying.close()
        working.join()
        assert not list(tmp_path.glob("*.parquet"))
        assert log.statistics().rows == 100


def test_what_fails_otherwise_than_the_disk_does_not_end_tidying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise KeyError("a defect")

    with Store(tmp_path) as store:
        monkeypatch.setattr(store, "sweep", failing)
        tidying = Tidying(store)
        tidying.tidy()
        tidying.close()


def there(next_seq: int, last_time: int | None) -> LogStatistics:
    return LogStatistics(next_seq, 0, 0, next_seq, 0 if last_time is not None else None, last_time)


@given(
    kept_rows=st.integers(1, 10**9),
    last=st.floats(0, 2e9),
    lives=st.lists(st.tuples(st.floats(0, 1e6), st.floats(2, 1e6), st.floats(0, 1e5)), max_size=5),
)
def test_no_number_is_given_twice_though_none_of_it_was_kept(
    kept_rows: int, last: float, lives: list[tuple[float, float, float]]
) -> None:
    """Servers that give numbers, keep none of them, and end: the pause, the seconds they live, the numbers in each."""
    now, given_before = last, kept_rows
    for pause, life, rate in lives:
        now += pause
        first = first_of_run(there(kept_rows, round(last * 1e6)), now)
        assert first % RUN == 0 and first >= given_before
        now += life
        given_before = first + int(life * rate)


def test_a_clock_that_was_set_back_and_a_recording_that_was_let_go_of() -> None:
    assert first_of_run(there(5, 10**15), 0.0) == RUN
    assert first_of_run(there(5, None), 10**9) == 10**9 * RUN
    assert first_of_run(there(10**9 * RUN + 5, None), 10**9) == 10**9 * RUN + RUN
    assert first_of_run(there(0, None), 10**9) == 0
