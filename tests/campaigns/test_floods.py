"""The campaign of floods: what it makes of its figures, and a small one."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.campaigns import floods
from tests.campaigns.floods import AFTER, BEFORE, SILENT, STORM, campaign, verdicts
from tests.support.servers import serving


def measured(kind: str, *, same: int = 0, new: int = 0, descriptors: int = 22) -> dict[str, Any]:
    flood = {} if kind in (BEFORE, AFTER) else {"connections": 10}
    return {"same_connection": {"failed": same}, "new_connection": {"failed": new}, "descriptors": descriptors} | flood


def failed(enough: bool = True, **changed: dict[str, Any]) -> list[str]:
    found = {kind: measured(kind) | changed.get(kind, {}) for kind in (BEFORE, SILENT, STORM, AFTER)}
    return [text.split(":")[0] for text, held in verdicts(found, 10, enough=enough).items() if not held]


def test_all_holds_or_is_named() -> None:
    assert failed() == []
    assert failed(storm=measured(STORM, same=1)) == ["calls by a connection that is there are answered, without"]
    assert failed(silent=measured(SILENT, new=3)) == ["calls by new ones are answered, without"]
    assert failed(after=measured(AFTER, descriptors=1000)) == ["descriptors are back"]


@pytest.mark.parametrize("made", [0, 9])
def test_a_flood_that_did_not_come_shows_nothing(made: int) -> None:
    assert failed(silent={"connections": made}) == ["there was a flood"]


def test_new_connections_may_go_without_an_answer_only_while_there_are_no_descriptors() -> None:
    assert failed(enough=False, silent=measured(SILENT, new=3) | {"connections": 9}) == []
    lasting = failed(enough=False, after=measured(AFTER, new=3))
    assert lasting == ["calls by new ones are answered before and afterwards, without"]


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_a_small_flood_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "CALLS", 3)
    with serving({}) as server:
        found = campaign(server.location, os.getpid(), 5)
    told = verdicts(found, 5, enough=True)  # descriptors are those of the clients, too
    assert [text for text, held in told.items() if not held and not text.startswith("descriptors")] == []
    assert list(found) == ["before", "silent", "garbage", "half a hello", "storm", "after"]
