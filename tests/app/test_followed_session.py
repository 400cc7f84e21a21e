"""A live session that goes on after the stream from the owner of its device broke off.

The owner here is a list of numbered rows, and a script says where each stream from it breaks.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import pyarrow as pa
import pytest

from fastflight.app import followed_session
from fastflight.app.followed_session import FollowedSession
from fastflight.app.routes import Routes
from fastflight.errors import BusyError, FastFlightError, RequestError, Stopped, TransportClosed
from fastflight.gap import Gap
from fastflight.service.requests import LAYOUT_CHANGED, SERVER_DRAINING, DeviceSession
from fastflight.service.source import Batches, Noted, Reading
from fastflight.sources.following import LIMIT
from fastflight.sources.session_rows import LINES_SCHEMA
from tests.support.refusals import refused

BROKEN = TransportClosed("the way to the owner broke")
DRAINING = {"ended": SERVER_DRAINING, "rejected": 1, "rejected_rows": [{"seq": 0, "reason": "no"}], "gaps": 0}
ENDED = {"ended": LIMIT, "rejected": 2, "rejected_rows": [{"seq": 9, "reason": "no"}], "gaps": 1, "rows": 3}


@dataclasses.dataclass
class Part:
    """A stream from the owner: it has the rows from the asked number to `last`, and then ends in this way."""

    last: int
    end: FastFlightError | dict[str, Any]
    refusals: list[FastFlightError] = dataclasses.field(default_factory=list)
    columns: tuple[str, ...] | None = None


class Owner:
    """Owns the device, and answers with one part after another. `asked` are the requests that it got."""

    def __init__(self, *parts: Part, first: int = 0, began: int = 0) -> None:
        self._parts = list(parts)
        self.first, self._began = first, began
        self.asked: list[DeviceSession] = []
        self.drained = 0
        self.owners = self

    def first_seq(self, device: str) -> int:
        return self.first

    async def aroute(self, device: str) -> None:
        """It is always there."""

    async def read(self, request: DeviceSession) -> Reading:
        self.asked.append(request)
        part = self._parts[0]
        if part.refusals:
            raise part.refusals.pop(0)
        self._parts.pop(0)
        begin = self._began if request.since_seq is None else request.since_seq
        names = part.columns or request.columns or LINES_SCHEMA.names
        schema = pa.schema([LINES_SCHEMA.field(name) for name in names])

        async def batches() -> AsyncIterator[Batches]:
            for seq in range(begin, part.last + 1):
                row = pa.record_batch([[seq], [0], [f"line {seq}"]], schema=LINES_SCHEMA).select(names)
                yield [row] if seq % 2 else [Noted(row, {"gap": Gap(seq, seq).details()})]
            if isinstance(part.end, FastFlightError):
                raise part.end

        def drain() -> None:
            self.drained += 1

        return Reading(schema, batches(), lambda: cast(dict[str, Any], part.end), drain)


class Passed:
    """What a client gets."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.outages: list[dict[str, Any]] = []
        self.schema: pa.Schema | None = None
        self.summary: dict[str, Any] = {}


def follow(owner: Owner, **keys: Any) -> Passed:
    passed = Passed()

    async def scenario() -> None:
        request = DeviceSession(device="board", reconnect=True, format="lines", **keys)
        reading = await FollowedSession(request, owner.read, cast(Routes, owner)).open()
        passed.schema = reading.schema
        async for batches in reading:
            for item in batches:
                batch, note = (item.batch, item.note) if isinstance(item, Noted) else (item, {})
                assert batch.schema.names == reading.schema.names
                passed.rows += batch.to_pylist()
                passed.outages += [note["gap"]] if "gap" in note and note["gap"]["why"] == "server down" else []
        passed.summary = dict(reading.summary())

    asyncio.run(scenario())
    return passed


@pytest.mark.parametrize("columns", [None, ("seq", "text"), ("text",), ("time", "text"), ("text", "seq")])
def test_no_row_passes_twice_when_the_way_to_the_owner_breaks(columns: tuple[str, ...] | None) -> None:
    owner = Owner(Part(4, BROKEN), Part(4, BROKEN), Part(7, ENDED))
    passed = follow(owner, columns=columns)
    assert [row["text"] for row in passed.rows] == [f"line {seq}" for seq in range(8)]
    assert [each["first"] for each in passed.outages] == [5, 5]
    assert {each["detail"] for each in passed.outages} == {BROKEN.what}
    assert passed.schema is not None and tuple(passed.schema.names) == (columns or tuple(LINES_SCHEMA.names))


def test_rows_with_other_columns_are_for_the_next_session() -> None:
    passed = follow(Owner(Part(4, BROKEN), Part(7, ENDED, columns=("seq", "text"))))
    assert [row["seq"] for row in passed.rows] == [0, 1, 2, 3, 4]
    assert (passed.summary["ended"], passed.summary["next_seq"]) == (LAYOUT_CHANGED, 5)


def test_it_goes_on_at_the_first_number_of_a_new_owner() -> None:
    owner = Owner(Part(4, DRAINING), Part(1_000_002, ENDED), first=1_000_000)
    passed = follow(owner, since_seq=3)
    assert [row["seq"] for row in passed.rows] == [3, 4, 1_000_000, 1_000_001, 1_000_002]
    assert [(each["detail"], each["first"]) for each in passed.outages] == [
        ("the device moved to another server", 1_000_000)
    ]


def test_an_owner_that_has_not_reached_the_number_yet_is_asked_again() -> None:
    early = RequestError("there is no chunk 5 yet", where="since_seq")
    owner = Owner(Part(4, BROKEN), Part(6, ENDED, [early, BusyError("it moves"), TransportClosed("gone"), early]))
    passed = follow(owner)
    assert [row["seq"] for row in passed.rows] == list(range(7)) and len(passed.outages) == 1
    assert [request.since_seq for request in owner.asked] == [None, 5, 5, 5, 5, 5]


def test_an_owner_that_never_reaches_the_number_ends_the_session_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_session, "RESUME_SECONDS", 0.0)
    early = [RequestError("there is no chunk 5 yet", where="since_seq") for _ in range(100)]
    owner = Owner(Part(4, BROKEN), Part(6, ENDED, [*early]))
    with refused(Stopped, where="board") as raised:
        follow(owner)
    assert BROKEN.what in raised.value.what and "there is no chunk 5 yet" in raised.value.what


def test_another_refusal_is_final() -> None:
    owner = Owner(Part(4, BROKEN), Part(6, ENDED, [RequestError("no column is named 'x'", where="columns")]))
    with refused(RequestError, where="columns"):
        follow(owner)
    assert len(owner.asked) == 2


def test_before_its_first_row_it_goes_on_where_it_began_and_not_at_the_first_row_of_the_owner() -> None:
    owner = Owner(Part(6, BROKEN), Part(8, ENDED), began=7)
    passed = follow(owner)
    (_, again) = owner.asked
    assert again.since_seq is None and again.since_seconds is not None and again.since_seconds < 60
    assert [row["seq"] for row in passed.rows] == [7, 8] and passed.outages[0]["first"] == 0
    owner = Owner(Part(6, BROKEN), Part(8, ENDED))
    assert [row["seq"] for row in follow(owner, since_seq=7).rows] == [7, 8]


def test_limits_count_for_the_whole_session() -> None:
    owner = Owner(Part(4, BROKEN), Part(6, ENDED))
    follow(owner, limit_rows=7, limit_seconds=100.0)
    assert [request.limit_rows for request in owner.asked] == [7, 2]
    assert owner.asked[1].limit_seconds is not None and 0 < owner.asked[1].limit_seconds < 100


def test_the_trailer_counts_all_parts() -> None:
    summary = follow(Owner(Part(4, DRAINING), Part(6, BROKEN), Part(7, ENDED))).summary
    assert (summary["ended"], summary["gaps"], summary["rejected"]) == (LIMIT, 3, 3)
    assert [each["seq"] for each in summary["rejected_rows"]] == [0, 9] and "rows" not in summary


def test_a_server_that_drains_ends_the_session_while_it_waits_for_the_next_owner() -> None:
    owner = Owner(Part(4, BROKEN), Part(6, ENDED, [BusyError("it moves") for _ in range(100)]))

    async def scenario() -> None:
        request = DeviceSession(device="board", reconnect=True, format="lines")
        reading = await FollowedSession(request, owner.read, cast(Routes, owner)).open()
        assert reading.drain is not None
        with refused(Stopped, where="board"):
            async for batches in reading:
                last = cast(pa.RecordBatch, batches[0].batch if isinstance(batches[0], Noted) else batches[0])
                if last["seq"][0].as_py() == 4:
                    asyncio.get_running_loop().call_later(0.02, reading.drain)

    asyncio.run(scenario())
    assert owner.drained
