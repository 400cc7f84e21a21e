"""Rounds of recorders: what all have taken is appended at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastflight.errors import SequenceConflict, Stopped
from fastflight.log import NewRows, NumberedRows, Store
from fastflight.sources import rounds as module
from fastflight.sources.rounds import PendingRows, Rounds
from fastflight.transport.chunk_buffer import Chunk


def part(store: Store, name: str, data: bytes, **place: int) -> PendingRows:
    rows = NewRows(store.open(name), 1, **place)
    return PendingRows([Chunk(0, 1000, "rx", data)], rows, 0, datetime.now(UTC))


def result_of(rows: PendingRows) -> None:
    assert rows.ticket is not None
    rows.ticket.result()


class Member:
    def __init__(self, take: Callable[[], list[PendingRows]]) -> None:
        self.take = take
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


def stored(store: Store, name: str) -> list[bytes]:
    items = store.log(name).read()
    return [each for item in items if isinstance(item, NumberedRows) for each in item.batch["data"].to_pylist()]


def test_a_round_appends_the_rows_of_all_members(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        parts = {name: part(store, name, name.encode()) for name in "abc"}

        async def main() -> None:
            rounds, over = Rounds(store, 0.0), asyncio.Event()
            waiting = dict(parts)

            def take(name: str) -> list[PendingRows]:
                if name == "c":
                    over.set()
                return [waiting.pop(name)] if name in waiting else []

            members = [Member(lambda name=name: take(name)) for name in "abc"]  # type: ignore[misc]
            with rounds.joined(members[0]), rounds.joined(members[1]), rounds.joined(members[2]):
                await over.wait()

        asyncio.run(main())
        for each in parts.values():
            result_of(each)
        assert [stored(store, name) for name in "abc"] == [[b"a"], [b"b"], [b"c"]]
        assert store.commits == 1


def test_a_member_that_fails_is_woken_and_stops_no_other(tmp_path: Path) -> None:
    async def main(store: Store) -> None:
        rounds, other = Rounds(store, 0.0), part(store, "a", b"a")
        failing = Member(lambda: [part(store, "b", b"b")][1 // 0 :])
        waiting = [other]
        with rounds.joined(failing), rounds.joined(Member(lambda: [waiting.pop()] if waiting else [])):
            await failing.woken.wait()
        result_of(other)

    with Store(tmp_path, sync_ms=0) as store:
        asyncio.run(main(store))


def test_rows_that_are_refused_are_left_out_of_those_of_the_others(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        parts = [part(store, "a", b"a"), part(store, "b", b"no", expected=7), part(store, "c", b"c", first=5)]
        Rounds(store, 0.0).append(parts)
        with pytest.raises(SequenceConflict):
            result_of(parts[1])
        for each in (parts[0], parts[2]):
            result_of(each)
        assert (stored(store, "a"), stored(store, "c")) == ([b"a"], [b"c"])
        assert store.log("c").next_seq == 6
        assert store.log("b").statistics().rows == 0


def test_each_member_gets_the_error_of_a_closed_store(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0) as store:
        one = part(store, "a", b"a")
        rounds = Rounds(store, 0.0)
    rounds.append([one])
    with pytest.raises(Stopped):
        result_of(one)


def test_the_rows_of_a_round_are_several_appends_if_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 2)
    with Store(tmp_path, sync_ms=0) as store:
        parts = [part(store, "a", bytes([number])) for number in range(5)]
        Rounds(store, 0.0).append(parts)
        for each in parts:
            result_of(each)
        assert b"".join(stored(store, "a")) == bytes(range(5))
