"""The campaign of faults during transfers: what is asked of each transfer, how it is judged, and a short one."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from fastflight.errors import FastFlightError, TransportClosed
from fastflight.simulator.faults import Faults
from tests.campaigns import transfer_faults, transfer_trial

pytestmark = pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")

# One that waits for no time limit: stalls are for the full transfer_trial.
QUICK_FAULTS = ("none", "byte to board changed", "reset while sending", "cut while receiving", "storage full", "noise")


def test_a_number_decides_all_of_a_transfer() -> None:
    assert transfer_trial.case(1, 85) == transfer_trial.case(1, 85)
    assert transfer_trial.case(1, 85) != transfer_trial.case(2, 85)


def test_every_fault_comes_in_turn_and_the_simulator_knows_it() -> None:
    cases = [transfer_trial.case(1, number) for number in range(10 * len(transfer_trial.FAULTS))]

    for fault in transfer_trial.FAULTS:
        chosen = [case for case in cases if case.fault == fault]
        assert len(chosen) == 10
        assert len({case.specs for case in chosen}) > 1 or fault == "none"
        for case in chosen:
            Faults.parse(case.specs)
    assert {case.operation for case in cases} == {"upload", "download"}
    assert {case.path for case in cases} == {"sync", "async"}


def judged(tmp_path: Path, case: transfer_trial.TransferCase, error: BaseException | None, lies: bytes) -> str:
    station = transfer_trial.Station(tmp_path, 0)
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / transfer_trial.TARGET).write_bytes(lies)
    attempt = transfer_trial.Attempt(error=error, content=None if error else b"")
    return station.judge(case, attempt, b"new", b"old")[0]


@pytest.mark.parametrize(
    ("error", "lies", "ended"),
    [
        (None, b"new", transfer_trial.COMPLETED),
        (None, b"old", transfer_trial.WRONG),
        (TransportClosed("gone"), b"old", transfer_trial.TYPED),
        # The answer was lost, the file was not.
        (TransportClosed("gone"), b"new", transfer_trial.TYPED),
        (TransportClosed("gone"), b"ne", transfer_trial.WRONG),
        (KeyError("x"), b"old", transfer_trial.UNTYPED),
        (FastFlightError("not foreseen"), b"old", transfer_trial.UNTYPED),
    ],
)
def test_an_upload_is_judged_by_what_lies_on_the_board(
    tmp_path: Path, error: BaseException | None, lies: bytes, ended: str
) -> None:
    upload = transfer_trial.TransferCase(0, "upload", "sync", "random", 3, "none", ())
    assert judged(tmp_path, upload, error, lies) == ended


def test_a_short_campaign_ends_right_or_typed(tmp_path: Path) -> None:
    seed = transfer_faults.SEED
    numbers = [number for number in range(80) if transfer_trial.case(seed, number).fault in QUICK_FAULTS]
    path = tmp_path / "faults.csv"
    screen = io.StringIO()

    bad = transfer_faults.carry_out(Console(file=screen, width=200), path, seed, numbers, boards=4)

    assert bad == 0, screen.getvalue()
    rows = {row["fault"]: row for row in pd.read_csv(path).to_dict("records")}
    assert rows["none"]["completed"] == rows["none"]["transfers"]
    assert rows["all"]["transfers"] == len(numbers) == 30
    assert rows["all"]["struck"] > 5
    assert f"{len(numbers)} transfers, 0 wrong, untyped, hung or stuck" in screen.getvalue()
