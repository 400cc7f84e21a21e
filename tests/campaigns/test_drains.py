"""That the campaign would notice what a server left half done."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from fastflight.client import FastFlightClient
from fastflight.errors import Stopped
from tests.campaigns.drain_crowd import (
    CUT,
    READINGS,
    SILENT,
    WRITTEN,
    DrainCrowd,
    DrainedServer,
    Promised,
    ShortAnswer,
    ToldOfTheEnd,
)
from tests.campaigns.drains import FILE, HELD, SHARED_BOARDS, TYPED, Run, look_at_boards
from tests.support.servers import serving


@pytest.mark.parametrize(
    ("kind", "error", "ended", "is_amiss"),
    [
        ("sync reader", Stopped("the server shuts down"), "stopped", False),
        ("http reader", ToldOfTheEnd("stopped"), "stopped", False),
        ("http reader", ConnectionResetError(), CUT, False),
        ("sync reader", ConnectionResetError(), CUT, True),
        ("http reader", ToldOfTheEnd("internal"), "internal", True),
        ("async reader", ShortAnswer("7 rows of 2000"), "another", True),
        ("websocket", ConnectionClosedError(Close(1001, ""), None), "close 1001", False),
        ("websocket", ConnectionClosedError(Close(4500, ""), None), "close 4500", True),
        ("websocket", ConnectionClosedError(Close(1011, ""), None), "close 1011", True),
    ],
)
def test_who_has_words_for_an_end_must_use_them(kind: str, error: Exception, ended: str, is_amiss: bool) -> None:
    def visit(where: str) -> None:
        raise error

    crowd = DrainCrowd(DrainedServer("", "", ("a",), ("b",), "c", "d"), 0)
    crowd._run(kind, visit, "", Event())
    assert dict(crowd.ends) == {f"{kind}: {ended}": 1}
    assert bool(crowd.untyped) is is_amiss


def test_a_file_that_ends_in_order_and_is_short_is_amiss(tmp_path: Path) -> None:
    (tmp_path / READINGS[1:]).write_text("n,x\n0,0\n")
    with serving({"b": f"sim:?telemetry=0&files={tmp_path}"}) as server:
        crowd = DrainCrowd(DrainedServer(server.location, "", ("a",), ("b",), "c", "d"), 0)
        for read in (crowd._read, crowd._aread):
            with pytest.raises(ShortAnswer, match="1 rows of 2000"):
                read("b")


def test_what_was_promised_and_is_not_there_is_noticed(tmp_path: Path) -> None:
    names = (*SHARED_BOARDS, TYPED, HELD)
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / READINGS[1:]).write_text(FILE)
    half, left, gone = (tmp_path / name for name in SHARED_BOARDS)
    (half / WRITTEN[1:]).write_text("n,generation\n0,2\n")
    (left / "written.csv.part").write_text("left")
    (gone / READINGS[1:]).write_text("n,x\n0,0\n")
    (tmp_path / TYPED / READINGS[1:]).write_text(FILE.replace("1,919\n", "1,918\n", 1))
    (tmp_path / HELD / SILENT[1:]).write_text("half of a new one")
    promised = Promised(acknowledged=dict.fromkeys(SHARED_BOARDS, 2), begun=dict.fromkeys(SHARED_BOARDS, 3))
    promised.acknowledged[left.name] = 0
    run = Run()
    devices = {name: f"sim:?telemetry=0&files={tmp_path / name}" for name in names}
    with serving(devices) as server:
        with FastFlightClient(server.location) as client:
            look_at_boards(client, tmp_path, promised, run)
    assert run.amiss == [
        f"{gone.name}: {READINGS} is another one",
        f"{TYPED}: {READINGS} is another one",
        f"{half.name}: {WRITTEN} is none of {{2, 3}}",
        f"{gone.name}: {WRITTEN} is gone",
        f"{HELD}: the old file is gone",
        f"{left.name}: files that nobody wrote: {{'written.csv.part'}}",
    ]
