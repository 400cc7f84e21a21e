"""The soak: its slope, its verdicts, and all of it for a few seconds."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest

from fastflight.client import Missed
from fastflight.errors import BusyError, FastFlightError
from fastflight.log.compacted import Compacted, parquet_names
from fastflight.log.disk import LocalDisk
from fastflight.log.sections import Sections
from fastflight.log.segment import segment_name
from fastflight.transport.chunk_buffer import CHUNK_BYTES, KEPT_BYTES
from fastflight_benchmark.loading.recorded import Replayed
from tests.campaigns import soak
from tests.campaigns.soaking import visitors, visits
from tests.campaigns.soaking.sampling import FLAT_MB_PER_HOUR, Sample, Sampling, Slope, compaction, slope
from tests.campaigns.soaking.visitors import STAYING, TIDE_SECONDS, Coming, VisitOutcome, comes
from tests.campaigns.soaking.visits import VISITS, Counted, Place, Told

REST = Sample(0.0, 200.0, 50, 30, 10, 5, 0, 1.0)
FILE = pa.table({"n": [1, 2, 3]})
PLACE = Place("grpc://127.0.0.1:1", "http://127.0.0.1:1", ("board-0",), ("sim-0",), FILE, b'{"n": 1}\n' * 3)


def samples(mb_per_hour: float, noise: float) -> list[Sample]:
    chance = random.Random(1)
    return [
        replace(REST, seconds=2.0 * n, rss_mb=200 + 2 * n / 3600 * mb_per_hour + chance.uniform(-noise, noise))
        for n in range(300)
    ]


def test_a_slope_is_found_in_noise_and_its_interval_holds_it() -> None:
    found = slope(samples(60.0, 3.0))
    assert found.low < 60 < found.high and found.low > 0 and found.flat is False


def test_noise_without_a_slope_is_flat() -> None:
    found = slope(samples(0.0, 1.0))
    assert found.low < 0 < found.high and found.flat
    assert slope(samples(5.0, 0.01)).flat and slope(samples(5.0, 0.01)).low > 0
    assert slope([]).low < slope([]).high and slope([]).flat is None


def test_a_slope_of_which_too_little_is_known_is_not_called_flat() -> None:
    found = slope(samples(0.0, 20.0))
    assert found.mb_per_hour < FLAT_MB_PER_HOUR < found.high and found.flat is None


@pytest.mark.parametrize(
    ("found", "flat"),
    [
        (Slope(-50.0, -90.0, -20.0), True),
        (Slope(1.0, -8.0, 9.9), True),
        (Slope(8.0, -11.0, 29.0), None),
        (Slope(50.0, 1.0, 90.0), None),
        (Slope(50.0, 10.1, 90.0), False),
    ],
)
def test_flat_or_not_is_said_of_all_of_an_interval_or_of_none(found: Slope, flat: bool | None) -> None:
    assert found.flat is flat


def test_a_large_answer_in_between_is_no_slope() -> None:
    told = [replace(each, rss_mb=each.rss_mb + 300 * (280 < n < 290)) for n, each in enumerate(samples(0.0, 1.0))]
    assert slope(told).flat


def in_rounds(mb_per_hour: float, *, mb: float, rounds: tuple[float, ...]) -> list[Sample]:
    """Recordings are compacted in every second one of `rounds`, in minutes, which takes so many `mb`."""
    bounds = [sum(rounds[:n]) * 60 for n in range(len(rounds) + 1)]
    chance = random.Random(1)
    return [
        replace(
            REST,
            seconds=at,
            rss_mb=200 + at / 3600 * mb_per_hour + mb * compacting * chance.uniform(0.5, 1.5) + chance.uniform(-5, 5),
            compacting=compacting,
        )
        for number, (begin, end) in enumerate(itertools.pairwise(bounds))
        for compacting in [bool(number % 2)]
        for at in (begin + 2.0 * n for n in range(int((end - begin) // 2)))
    ]


# What a soak of two hours has: it ends while recordings are compacted.
ROUNDS = (13.0, 6.0, 12.0, 7.0, 12.0, 5.0, 12.0, 8.0, 12.0, 7.0, 12.0, 6.0)


def test_a_run_that_begins_or_ends_in_compacting_has_not_grown_by_that() -> None:
    assert slope(in_rounds(0.0, mb=80.0, rounds=ROUNDS)).flat
    assert slope(in_rounds(0.0, mb=80.0, rounds=(0.0, *ROUNDS[:-1]))).flat


@pytest.mark.parametrize("mb", [0.0, 80.0])
def test_what_grows_beside_compacting_is_found(mb: float) -> None:
    found = slope(in_rounds(20.0, mb=mb, rounds=ROUNDS))
    assert found.low < 20 < found.high and found.flat is False


def test_what_compacting_does_not_give_back_is_found() -> None:
    """Also where each round takes as much as the one before."""
    kept, told, before = 0.0, [], False
    for each in in_rounds(0.0, mb=80.0, rounds=ROUNDS):
        kept += 5.0 * (before and not each.compacting)
        before = each.compacting
        told.append(replace(each, rss_mb=each.rss_mb + kept))
    assert slope(told).flat is False


def test_a_few_samples_of_another_kind_weigh_nothing() -> None:
    told = [
        replace(each, compacting=n % 100 == 99, rss_mb=each.rss_mb + n * (n % 100 == 99))
        for n, each in enumerate(samples(0.0, 1.0))
    ]
    assert slope(told).flat


def test_whether_recordings_are_compacted_is_seen_by_their_files() -> None:
    segments = [segment_name(4, 1), "store.lock"]
    made = [Compacted(LocalDisk(Path()), 0, 1, [], Sections(), 0).name, *parquet_names(0, 1, 2)]
    begun = parquet_names(2, 3, 1)
    assert compaction([]) == compaction(segments) == (0, False)
    assert compaction([*segments, *made]) == (1, False)
    assert compaction([*segments, *begun]) == (0, True)
    assert compaction([*segments, *begun, *made]) == (1, True)


def compacted_at(seconds: float, compacting: float = 0.0) -> list[Sample]:
    """The first part is made at `seconds`, and others for so many seconds more."""
    return [
        replace(each, compacted=each.seconds >= seconds, compacting=seconds - 60 <= each.seconds < seconds + compacting)
        for each in samples(0.0, 1.0)
    ]


def soaked(outcome: VisitOutcome, end: Sample, kept: Replayed, grew: Slope) -> soak.Soaked:
    return soak.Soaked(outcome, kept, 100, REST, end, grew, compacted_at(250.0), 600.0)


def good() -> soak.Soaked:
    return soaked(VisitOutcome(counted=Counted(read=1)), REST, Replayed(rows=100), Slope(1.0, -1.0, 3.0))


def test_all_holds_or_is_named() -> None:
    assert all(good().verdicts().values())
    bad = soaked(
        VisitOutcome(
            Counter(replaying=20, reading=20), Counter(reading=1), Counted(read=1, wrong=1), untyped=["KeyError"]
        ),
        replace(REST, descriptors=100, lasting_threads=11, tasks=6, streams=1),
        Replayed(rows=99),
        Slope(50.0, 20.0, 80.0),
    )
    assert not any(bad.verdicts().values())
    assert "each kind of visit has had rows, without any: ['replaying']" in bad.verdicts()


def test_what_is_not_known_at_the_end_did_not_hold() -> None:
    unknown = replace(REST, lasting_threads=-1, tasks=-1, streams=-1)
    told = soaked(VisitOutcome(counted=Counted(read=1)), unknown, Replayed(rows=100), Slope(1.0, -1.0, 3.0)).verdicts()
    failed = {text.split(" ")[0] for text, held in told.items() if not held}
    assert failed == {"threads", "no", "tasks"}


def test_samples_that_stop_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def gone(sampling: Sampling) -> Sample:
        stopped.set()
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(Sampling, "take", gone)
    with pytest.raises(psutil.NoSuchProcess):
        with Sampling(os.getpid(), PLACE.location, tmp_path, 0.001):
            stopped.wait()


@pytest.mark.parametrize(("told", "stolen"), [({"steal": 12.5}, 12.5), ({"idle": 80.0}, 0.0)])
def test_what_others_of_the_host_had_is_sampled_where_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, float], stolen: float
) -> None:
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda: SimpleNamespace(**told))
    sample = Sampling(os.getpid(), PLACE.location, tmp_path, 1.0).take()
    assert (sample.stolen, sample.tasks, sample.compacting) == (stolen, -1, False)


def test_with_tides_some_stay_when_the_others_go() -> None:
    high, low = 5 * TIDE_SECONDS + 1, 5.5 * TIDE_SECONDS + 1
    assert [sum(comes(number, now) for number in range(4 * STAYING)) for now in (high, low)] == [4 * STAYING, 4]


def test_memory_is_judged_by_what_comes_after_all_was_filled_once() -> None:
    assert soak.TAPS_FULL_SECONDS * soak.ROWS_PER_SECOND * CHUNK_BYTES >= KEPT_BYTES
    assert soak.warm_up_of(compacted_at(250.0)) == 250.0
    assert soak.warm_up_of(compacted_at(250.0, compacting=40.0)) == 290.0
    assert soak.warm_up_of(compacted_at(100.0)) == soak.TAPS_FULL_SECONDS
    assert soak.warm_up_of(compacted_at(3600.0)) is None and soak.warm_up_of([]) is None


@pytest.mark.parametrize("seconds", [590.0, 3600.0])
def test_one_that_is_over_before_does_not_tell(seconds: float) -> None:
    found = replace(good(), slope=Slope(50.0, 20.0, 80.0), samples=compacted_at(seconds))
    assert [text.split(":")[0] for text, held in found.verdicts().items() if held is None] == ["memory is flat"]


@pytest.mark.parametrize(
    ("error", "codes", "untyped"),
    [
        (BusyError("in use"), {"busy": 1}, 0),
        (FastFlightError("internal error, see the log"), {"internal": 1}, 1),
        (OSError("cut"), {}, 1),
        (KeyError("n"), {}, 1),
        (IncompleteRead(b""), {}, 1),
        (Told("busy", "in use"), {"busy": 1}, 0),
        (Told("internal", "see the log"), {"internal": 1}, 1),
    ],
)
def test_an_error_without_a_code_is_a_defect(
    monkeypatch: pytest.MonkeyPatch, error: Exception, codes: dict[str, int], untyped: int
) -> None:
    def failing(place: Place, chance: random.Random, own: str) -> Counted:
        raise error

    monkeypatch.setitem(visits.VISITS, "reading", failing)
    coming = Coming(PLACE, 1, 1)
    coming.visit("reading", random.Random(1), "a")
    assert dict(coming.outcome.errors) == codes and len(coming.outcome.untyped) == untyped


@pytest.mark.parametrize(("came", "wrong"), [([1, 2, 3], 0), ([1, 2], 1), ([1, 2, 3, 3], 1), ([1, 2, 4], 3), ([], 3)])
def test_rows_are_right_that_are_those_of_the_file_and_not_only_as_many(
    monkeypatch: pytest.MonkeyPatch, came: list[int], wrong: int
) -> None:
    counted = visits._compared(pa.table({"n": pa.array(came, pa.int64())}), PLACE)
    assert (counted.read, counted.wrong) == (len(came), wrong)
    said = b"".join(b'{"n": %d}\n' % (number if number > 3 else 1) for number in came)
    monkeypatch.setattr(visits, "lines", lambda http, board: said)
    over_http = visits.fetching(PLACE, random.Random(1), "a")
    assert (over_http.read, over_http.wrong) == (len(came), wrong)


@pytest.mark.parametrize(
    ("batches", "wrong"),
    [
        ([([None, 4, 5], 0), ([6], 0)], 0),
        ([([4, 5], 0), ([7], 0)], 1),
        ([([4, 5], 0), ([5], 0)], 1),
        ([([4, 5], 0), ([9], 1)], 0),
        ([([4, 5], 0), ([None, None], 0)], 2),
        ([([4, 5], 0), ([None, 9], 1)], 0),
    ],
)
def test_rows_of_a_board_go_on_from_the_last_one_or_are_told_to_be_missing(
    batches: list[tuple[list[int | None], int]], wrong: int
) -> None:
    gap = Missed(0, 0)
    rows = [(pa.record_batch({"n": pa.array(numbers, pa.int64())}), [gap] * gaps) for numbers, gaps in batches]
    counted = Counted()
    visits._follow(iter(rows), counted, slow=False)
    assert (counted.wrong, counted.read) == (wrong, sum(len(numbers) for numbers, _ in batches))


def test_a_client_that_does_not_leave_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    there, over = threading.Event(), threading.Event()

    def hanging(place: Place, chance: random.Random, own: str) -> Counted:
        there.set()
        over.wait()
        return Counted()

    for kind in VISITS:
        monkeypatch.setitem(visits.VISITS, kind, hanging)
    monkeypatch.setattr(visitors, "LEAVE_SECONDS", 0.01)
    coming = Coming(PLACE, 1, 1)
    coming.start()
    there.wait()
    coming.stop()
    assert coming.outcome.untyped == ["client-0: does not end"]
    over.set()
    coming.stop()


def test_a_few_boards_for_a_few_seconds() -> None:
    found = soak.soak(6.0, 4, 6, seed=2, interval=0.5)
    assert found.seconds == 6.0
    failed = [text for text, held in found.verdicts().items() if held is False]
    assert not failed, (failed, found.outcome.untyped)
    assert set(found.outcome.visits) == set(VISITS)
    assert found.samples and found.printed_rows > 0


def test_one_that_is_ended_early_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "_lasted", ended_after(1.0, soak._lasted))
    found = soak.soak(86_400.0, 2, 2, seed=3, interval=0.5)
    assert 1.0 <= found.seconds < 86_400.0
    assert found.samples and False not in found.verdicts().values()


def ended_after(seconds: float, wait: Callable[[float], float]) -> Callable[[float], float]:
    """`wait`, interrupted after `seconds`."""

    def interrupted(all_of_it: float) -> float:
        ended = threading.Timer(seconds, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        ended.start()
        try:
            return wait(all_of_it)
        finally:
            ended.join()

    return interrupted
