"""The campaign of faults at every hop: what it makes of the rows and errors it sees, and a short one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response

from fastflight.errors import FastFlightError, TransportClosed
from tests.campaigns.faulting import report, trial
from tests.campaigns.faulting.browsing import BROKEN, HttpPut, HttpSession, unfinished
from tests.campaigns.faulting.campaign import Campaign
from tests.campaigns.faulting.program import Program
from tests.campaigns.faulting.stage import BROWSER_GATEWAY, SOCKET, Stage
from tests.campaigns.faulting.strikes import BOARD, FULL_DISK, KILLED, SERVER, Strike
from tests.campaigns.faulting.talker import Kept, flaw, stretches
from tests.campaigns.faulting.trial import BAD, FaultOutcome, FaultTrials, warm_up
from tests.campaigns.faulting.works import (
    ROWS,
    Ended,
    PutProcess,
    Recording,
    Rows,
    Session,
    Work,
    code_of,
    code_of_answer,
)
from tests.support.chaos import Fault, Kind, Way
from tests.support.waiting import until

# Any fixed numbers: together each hop of the stage is struck, and each kind of work done.
SEED = 4
FAULTS = (0, 5, 7, 9, 10, 12, 14, 15, 18, 22, 24, 31, 34, 36)


def lines(boot: int, first: int, last: int) -> bytes:
    return b"".join(b"%d:%d:%s\r\n" % (boot, n, b"x" * (n * 7919 % 60)) for n in range(first, last + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"xxx",
        lines(0, 5, 9),
        lines(12, 5, 9)[1:],  # its first line has lost its beginning
        lines(0, 5, 9)[:-4],
        lines(0, 5, 9)[:-4] + b"\r\nMPY: soft reboot\r\n" + lines(1, 0, 3),
        b"MicroPython v1.27\r\n" + lines(3, 0, 3),
    ],
)
def test_output_without_a_flaw(data: bytes) -> None:
    assert flaw(data) == ""


@pytest.mark.parametrize(
    "data",
    [
        lines(0, 5, 9) + lines(0, 11, 12),
        lines(0, 5, 9) + lines(0, 9, 12),
        lines(0, 5, 9) + b"x" + lines(0, 10, 12),
        lines(0, 5, 9).replace(b"0:7:", b"0:8:"),
        lines(0, 5, 9)[:-4] + lines(0, 10, 12),
        lines(0, 5, 9).replace(b":xx", b":x", 2),
        lines(1, 5, 9) + lines(0, 0, 3),
    ],
)
def test_what_is_missing_twice_or_other_is_seen(data: bytes) -> None:
    assert flaw(data)


def test_rows_are_whole_between_places_where_something_may_be_missing() -> None:
    kept = Kept({0: b"a", 1: b"b", 2: b"c", 5: b"d", 6: b"e"}, cuts={2})
    assert list(stretches(kept)) == [b"ab", b"c", b"de"]


@pytest.mark.parametrize("made", [Session, HttpSession])
def test_a_session_that_ends_in_order_with_fewer_rows_has_a_flaw(made: type[Rows]) -> None:
    work = made(cast(Stage, None), random.Random(1))
    work.kept = Kept(dict.fromkeys(range(ROWS), b""))
    assert work.flaw(True) == ""
    del work.kept.rows[ROWS - 1]
    assert work.flaw(True).startswith(f"{ROWS - 1} rows came of {ROWS}")
    assert work.flaw(False) == ""


def test_a_recording_that_ends_in_order_has_all_that_was_asked_for() -> None:
    work = Recording(cast(Stage, None), random.Random(1))
    work.asked = range(5, 8)
    work.kept = Kept({5: b""}, missing=[(6, 6)])
    assert work.flaw(True).startswith("1 of 3 rows did not come, the first is 7")
    assert work.flaw(False) == ""
    work.kept.missing.append((7, 7))
    assert work.flaw(True) == ""


def test_a_program_that_ends_by_itself_is_told_and_one_that_is_ended_is_not(tmp_path: Path) -> None:
    said = [r"listening on (grpc://127.0.0.1:\d+)"]
    program = Program("server", ["serve", "--server", "grpc://127.0.0.1:0"], said, tmp_path / "log")
    program.start()
    program.kill()
    assert program.complaints() == []
    program.start()
    os.kill(program.pid, signal.SIGSEGV)
    until(lambda: not program.is_alive)
    told = [f"it ended by itself with {-signal.SIGSEGV}"]
    assert program.complaints() == told
    program.kill()
    program.kill()
    assert program.complaints() == told


def test_a_client_that_crashes_was_not_killed() -> None:
    work = object.__new__(PutProcess)
    for code, raised in ((f"os.kill(os.getpid(), {signal.SIGABRT})", RuntimeError), ("os._exit(3)", Ended)):
        command = [sys.executable, "-c", f"import os; input(); {code}"]
        pipe = subprocess.PIPE
        work.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        with pytest.raises(raised):
            work.carry_out()


def test_only_what_is_documented_counts_as_told() -> None:
    assert code_of(TransportClosed("gone")) == "transport.closed"
    assert code_of(Ended("ended: device gone")) == "ended: device gone"
    assert code_of(FastFlightError("internal error")) == code_of(KeyError("x")) == ""
    told = code_of_answer(502, b'{"code": "transport.closed", "text": "gone"}')
    assert told is not None and told.code == "502 transport.closed"
    assert code_of_answer(500, b'{"code": "internal"}') is code_of_answer(502, b"<html>") is None
    assert code_of_answer(503, b'{"code": "internal"}') is None  # as a WebSocket is told of it


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidStatus(Response(503, "", Headers(), b'{"code": "busy"}')), "503 busy"),
        (InvalidStatus(Response(500, "", Headers(), b'{"code": "internal"}')), ""),
        (InvalidStatus(Response(503, "", Headers(), b"<html>")), ""),
        (ConnectionClosedError(Close(1001, ""), None), "closed with 1001"),
        (ConnectionClosedError(Close(4503, "busy"), None), "closed with 4503"),
        (ConnectionClosedError(Close(4500, ""), None), ""),
        (ConnectionClosedError(Close(1011, ""), None), ""),
        (ConnectionClosedOK(Close(1000, ""), None), ""),
        (ConnectionClosedError(None, None), BROKEN),
        (ConnectionResetError("cut"), BROKEN),
    ],
)
def test_what_ends_a_websocket_too_early_is_judged_by_what_it_says(error: Exception, code: str) -> None:
    assert code_of(unfinished(error)) == code


@pytest.mark.parametrize(
    ("way", "hop", "kind", "may"),
    [
        (BROWSER_GATEWAY, BROWSER_GATEWAY, "cut (RST)", True),
        (BROWSER_GATEWAY, SERVER, KILLED, True),
        (BROWSER_GATEWAY, SERVER, "clock", False),
        (BROWSER_GATEWAY, BOARD, "reset", False),
    ],
)
def test_a_browsers_connection_may_break_only_where_it_was_struck(way: str, hop: str, kind: str, may: bool) -> None:
    assert Strike(kind, hop, "", lambda: None, lambda: True).may_break(way) is may


@pytest.mark.parametrize(
    ("kind", "missing", "lost"),
    [
        (FULL_DISK, (5, 6), 0),
        (FULL_DISK, (4, 6), 1),  # one was promised before the disk was full
        ("kill -9", (5, 6), 2),
        (FULL_DISK, None, 2),
    ],
)
def test_a_full_disk_excuses_no_row_that_was_promised_before(
    monkeypatch: pytest.MonkeyPatch, kind: str, missing: tuple[int, int] | None, lost: int
) -> None:
    told = [missing] if missing else []
    away = range(missing[0] if missing else 5, 7)
    kept = Kept({seq: b"" for seq in range(10) if seq not in away}, missing=told)
    stage = cast(Stage, SimpleNamespace(direct=lambda: None))
    monkeypatch.setattr(trial, "recorded", lambda *_: kept)
    monkeypatch.setattr(FaultTrials, "_records", lambda trials: "")
    trials = FaultTrials(stage, SEED)
    trials._registry.before, trials._registry.promised = 5, 8
    found = trials._look(Recording(cast(Stage, None), random.Random(1)), Strike(kind, "", "", print, lambda: True))
    assert found == (
        (trial.LOST, f"{lost} rows that were promised are not there, the first is {away[0]}") if lost else None
    )


@pytest.mark.timeout(300)  # processes that start on a busy machine
def test_a_gateway_that_hangs_up_without_a_word_is_not_excused_by_a_fault_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def struck(stage: Stage, work: Work, chance: random.Random, *, quick: bool) -> Strike:
        gateway = stage.proxies[BROWSER_GATEWAY]
        hang_up = Fault(Kind.END, Way.BACK, 0)
        return Strike("reset", BOARD, "", lambda: gateway.strike(hang_up), lambda: bool(gateway.mend()))

    monkeypatch.setattr(trial, "strike", struck)
    monkeypatch.setattr(trial, "WORKS", [(1, HttpPut), (0, HttpPut)])
    warm_up()
    with Stage(tmp_path, SOCKET) as stage:
        outcome = FaultTrials(stage, SEED).carry_out(0)
    assert (outcome.struck, outcome.ended, outcome.code) == (True, "untyped", BROKEN)


def test_the_tables_count_what_is_bad() -> None:
    one = FaultOutcome(1, SOCKET, "h", "cut", "s", "put", "sync", True, "typed", "busy", "", 1.0, 2.0, 1)
    other = FaultOutcome(2, SOCKET, "h", "cut", "s", "session", "sync", False, "lost", "", "", 1.0, 4.0, 1)
    frame = report.frame_of([one, other])
    everything = report.summarize(frame, ["hop", "kind"]).iloc[-1]
    assert (everything["faults"], everything["struck"], everything["typed"], everything["lost"]) == (2, 1, 1, 1)
    text = report.markdown(report.summarize(frame, ["kind_of_work"]), ["kind_of_work"])
    assert "| all | 2 | 1 | 0 | 1: busy 1 | 1 | 0 | 0 | 0 | 0 | 3.0, 4.0 s |" in text


@pytest.mark.timeout(300)  # processes that start on a busy machine
def test_a_stage_that_breaks_down_is_a_flaw_and_costs_no_other_its_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FaultOutcome(1, SOCKET, "h", "cut", "s", "put", "sync", True, "typed", "busy", "", 1.0, 2.0, 1)

    def play(campaign: Campaign, line: str, numbers: object) -> None:
        if line == "serial":
            raise TransportClosed("no server came up", where=line)
        campaign.outcomes.append(one)

    monkeypatch.setattr(Campaign, "_play", play)
    outcomes, flaws = Campaign(tmp_path, 1, ["socket", "serial"], progress=print).run(2)

    assert outcomes == [one]
    assert len(flaws) == 1
    assert flaws[0].startswith("serial: the stage broke down: ")
    assert "no server came up" in flaws[0]


@pytest.mark.parametrize("tls", [False, True], ids=["open", "TLS"])
def test_a_short_campaign_loses_nothing_and_ends_typed(tmp_path: Path, tls: bool) -> None:
    warm_up()
    with Stage(tmp_path, SOCKET, tls=tls) as stage:
        trials = FaultTrials(stage, SEED, quick=True)
        outcomes = [trials.carry_out(number) for number in FAULTS]
        flaws = trials.finish()
    assert [outcome for outcome in outcomes if outcome.ended in BAD] == []
    assert flaws == []
    assert sum(outcome.struck for outcome in outcomes) > len(FAULTS) / 2
    assert {outcome.ended for outcome in outcomes} == {"completed", "typed"}
    assert trials.acknowledged > 100
