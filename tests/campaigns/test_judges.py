"""What campaigns must notice: without that, a run that finds nothing shows nothing."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.errors import FastFlightError, RequestError, TransportClosed
from fastflight.gap import Gap
from fastflight.log import Store
from tests.campaigns import engine, kills
from tests.campaigns.clustering.boards import CountingBoard
from tests.campaigns.clustering.work import Auditor, Work
from tests.campaigns.faulting.talker import Kept, flaw
from tests.campaigns.gaps import GapOutcome, compare
from tests.campaigns.kills import LOGS, batch_of
from tests.campaigns.soak import Sample, growth


def test_a_log_with_lost_and_wrong_rows(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        log = store.open("a")
        log.append(batch_of("a", 0, 5)).result()
        moved = batch_of("a", 100, 3)
        log.append(moved.set_column(0, moved.schema.field(0), pa.array([0] * 3, moved.schema.field(0).type)))
    outcome = kills.KillOutcome()
    outcome.following["a"] = 10
    kills.check(tmp_path, outcome, dict.fromkeys(LOGS, 0))
    assert (outcome.lost, outcome.wrong, outcome.clean) == (2, 3, False)


@pytest.mark.parametrize(("clean", "code"), [(True, 0), (False, 1)])
def test_a_command_fails_if_its_outcome_is_not_clean(
    clean: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fastflight_benchmark.ending.like_ctrl_c", lambda: None)
    monkeypatch.setattr("sys.argv", ["campaign", "--seed", "7", "--output", str(tmp_path / "out.json")])
    outcome = kills.KillOutcome(acknowledged=1, lost=0 if clean else 1)
    with pytest.raises(SystemExit) as ended:
        engine.command("A campaign.", lambda folder, asked: outcome)
    assert ended.value.code == code
    assert json.loads((tmp_path / "out.json").read_text())["seed"] == 7


def test_only_documented_errors_may_end_work() -> None:
    errors = iter([TransportClosed("gone"), FastFlightError("not foreseen"), ValueError("odd"), RequestError("bad")])

    def work() -> None:
        raise next(errors)

    worker = Work.__new__(Work)
    engine.Worker.__init__(worker, "reader", work, lambda: 0.0)
    for _ in range(4):
        worker.once()
    worker.once(lambda: None)
    assert worker.ended == {TransportClosed.code: 1, "": 3, "whole": 1}
    assert [text for flaw in worker.flaws for text in ("not foreseen", "odd", "bad") if text in flaw] == [
        "not foreseen", "odd", "bad",
    ]  # fmt: skip


def test_work_that_hangs_is_a_flaw() -> None:
    began, over = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        over.wait()

    worker = engine.Worker("reader", work, lambda: 0.0)
    worker.hung_seconds = 0.0
    worker.start()
    began.wait()
    worker.leave()
    worker.settle()
    assert worker.flaws == ["reader never ended"]
    over.set()
    worker.join()


def test_a_fault_that_is_not_mended_is_a_flaw() -> None:
    def begin(stage: list[str], target: str) -> None:
        stage.append(f"begin {target}")
        raise AssertionError("exit code 1")

    stage: list[str] = []
    fault = engine.Fault(("alpha",), begin, lambda stage, target: stage.append(f"mend {target}"))
    strike = engine.Strike(stage, "stop", fault, random.Random(1))
    strike.run()
    assert (stage, strike.flaw) == (["begin alpha", "mend alpha"], "stop: alpha: exit code 1")


def lines(boot: int, first: int, last: int) -> bytes:
    return b"".join(b"%d:%d:%s\r\n" % (boot, n, b"x" * (n * 7919 % 60)) for n in range(first, last + 1))


@pytest.mark.parametrize(
    ("output", "right"),
    [
        (lines(0, 5, 9)[:-4] + b"\r\nMPY: soft reboot\r\n" + lines(1, 0, 3), True),
        (lines(0, 5, 9) + lines(0, 11, 12), False),
        (lines(0, 5, 9) + lines(0, 9, 12), False),
        (lines(0, 5, 9).replace(b"0:7:", b"0:8:"), False),
        (lines(0, 5, 9)[:-4] + lines(0, 10, 12), False),
    ],
)
def test_output_that_is_missing_repeated_or_changed(output: bytes, right: bool) -> None:
    assert (flaw(output) == "") is right


def test_a_server_that_writes_after_the_next_one() -> None:
    with CountingBoard() as board:
        for number, now in ((1, 0.0), (2, 1.0), (1, 1.05), (2, 2.0)):
            board.wrote(number, b"w", now)
        assert board.overlaps == []
        board.wrote(1, b"late", 2.1)
        assert len(board.overlaps) == 1 and "b'late'" in board.overlaps[0]


def test_rows_of_a_cluster_that_are_gone_or_others() -> None:
    auditor = Auditor.__new__(Auditor)
    auditor.device, auditor.promised, auditor.kept = "board0", 3, Kept({0: b"a", 1: b"b"})
    rows = {0: b"a", 1: b"b", 2: b"c"}
    assert auditor.compare(rows, [], 0) == []
    # A gap does not excuse a row that was said to be stored.
    assert "1 of 3 stored rows" in auditor.compare({0: b"a", 1: b"b"}, [Gap(2, 2, "not read in time")], 0)[0]
    assert "are damaged" in auditor.compare(rows, [Gap(3, 4, "damaged")], 0)[0]
    assert "the first is 1" in auditor.compare({**rows, 1: b"x"}, [], 0)[0]


@pytest.mark.parametrize("mb_per_hour", [0.0, 60.0])
def test_memory_that_grows(mb_per_hour: float) -> None:
    """Compacting takes 80 MB in every second round of ten minutes."""
    chance = random.Random(1)
    samples = [
        Sample(
            seconds=(seconds := 16.0 * number),
            rss_mb=200 + seconds / 3600 * mb_per_hour + chance.uniform(-5, 5) + 80 * compacting,
            compacted=number // 37,
            compacting=bool(compacting),
        )
        for number in range(450)
        for compacting in [number // 37 % 2]
    ]
    found = growth(samples)
    assert found is not None and abs(found - mb_per_hour) < 5
    assert growth(samples[:100]) is None


def test_lines_that_were_printed_in_no_gap_are_found() -> None:
    times = [1000.0 + 10 * number for number in range(6)]
    gap = Gap(9, 8, "line lost", "", datetime.fromtimestamp(1009, UTC), datetime.fromtimestamp(1021, UTC))
    outcome = GapOutcome()
    compare(times, b"0\n3\n5\n", [gap], outcome)
    assert (outcome.missing, outcome.unexplained, outcome.clean) == (3, [4], False)
    compare(times, b"0\n1\n2\n3\n3\n5\n4\n", [], outcome)
    assert outcome.disordered == 2
