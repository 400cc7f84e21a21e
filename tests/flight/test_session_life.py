"""How a live session begins, what makes a batch leave, how silence shows, what is its end; on shared lines, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow.flight as flight
import pytest

from fastflight.runtime.outgoing import HEARTBEAT_SECONDS
from fastflight.sources.modes import InThread, OnLoop
from tests.support.servers import serving

from .conftest import HandmadeDevice, Serve, ticket
from .session_messages import SESSION, messages

Read = Callable[..., Any]


@pytest.fixture
def read(mode: str, peer: HandmadeDevice) -> Iterator[Read]:
    """Ask for a session of the peer. In one mode a server has it by itself, in the other it shares it by a bridge."""
    bridge = {"socket": 0} if mode == "async" else None
    with ExitStack() as stack:
        running = stack.enter_context(serving({"demo": {"url": peer.url, "bridge": bridge}}))
        client = stack.enter_context(flight.connect(running.location))

        def ask(**keys: Any) -> Any:
            return client.do_get(ticket(**{**SESSION, **keys}))

        ask.close = stack.close  # type: ignore[attr-defined]
        yield ask


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life at every look."""
    monkeypatch.setattr("fastflight.runtime.outgoing.HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr("fastflight.sources.modes.OnLoop.idle_seconds", 0.01)
    monkeypatch.setattr("fastflight.sources.modes.InThread.idle_seconds", 0.01)


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.usefixtures("quick")
def test_silence_is_broken_by_batches_without_rows(peer: HandmadeDevice, read: Read, mode: str) -> None:
    stream = messages(read(format="lines", mode=mode))
    with peer.answer() as device:
        assert [next(stream) for _ in range(3)] == [([], {})] * 3
        device.sendall(b"a word\n")
        assert texts(next(rows for rows, _ in stream if rows)) == ["a word"]
        assert next(stream) == ([], {})


@pytest.mark.usefixtures("quick")
def test_a_client_that_left_a_silent_session_is_noticed(peer: HandmadeDevice, read: Read, mode: str) -> None:
    reader = read(mode=mode)
    with peer.answer() as device:
        next(messages(reader))
        reader.cancel()
        # Nobody listens any more: a device that nobody bridges is let go, a bridge keeps its own.
        device.sendall(b"unheard\n")
        again = messages(read(format="lines", limit_rows=1, since_seconds=60, mode=mode))
        assert texts(next(rows for rows, _ in again if rows)) == ["unheard"]


def test_a_full_batch_leaves_though_there_is_time(peer: HandmadeDevice, read: Read, mode: str) -> None:
    stream = messages(read(format="lines", flush_ms=60_000, batch_rows=3, mode=mode))
    with peer.answer() as device:
        device.sendall(b"1\n2\n3\n4\n5\n6\n7\n")
        assert [texts(next(stream)[0]) for _ in range(2)] == [["1", "2", "3"], ["4", "5", "6"]]


def test_a_batch_that_is_not_full_leaves_when_it_is_time(peer: HandmadeDevice, read: Read, mode: str) -> None:
    stream = messages(read(format="lines", flush_ms=20, batch_rows=1000, mode=mode))
    with peer.answer() as device:
        device.sendall(b"1\n2\n")
        assert texts(next(stream)[0]) == ["1", "2"]


def test_rows_that_wait_for_their_batch_come_before_the_end(peer: HandmadeDevice, read: Read, mode: str) -> None:
    stream = messages(read(format="lines", flush_ms=60_000, mode=mode))
    with peer.answer() as device:
        device.sendall(b"1\n2\n")
    (rows, _), (_, trailer) = stream
    assert texts(rows) == ["1", "2"]
    assert trailer["ended"] == "device gone"


def test_a_session_begins_some_time_back(
    peer: HandmadeDevice, serve: Serve, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = serve(peer.url)
    tap = board.inventory.device("demo").tap
    now = tap._clock()
    for age, data in ((300, b"long ago\n"), (100, b"not long ago\n"), (1, b"just now\n")):
        monkeypatch.setattr(tap, "_clock", lambda age=age: now - age * 1_000_000_000)
        tap.feed("rx", data)

    def since(seconds: float, rows: int) -> list[str]:
        asked = ticket(**SESSION, format="lines", since_seconds=seconds, limit_rows=rows, mode=mode)
        return [text for rows, _ in messages(board.client.do_get(asked)) for text in texts(rows)]

    reader = board.client.do_get(ticket(**SESSION, format="lines", mode=mode))
    with peer.answer() as device:
        assert since(200, 2) == ["not long ago", "just now"]
        assert since(1000, 3) == ["long ago", "not long ago", "just now"]
        device.sendall(b"from now on\n")
        assert texts(next(messages(reader))[0]) == ["from now on"]


@pytest.mark.parametrize("limit", [{"limit_rows": 2}, {"limit_seconds": 0.0}], ids=["rows", "seconds"])
def test_a_limit_is_the_end(peer: HandmadeDevice, read: Read, mode: str, limit: dict[str, float]) -> None:
    reader = read(format="lines", mode=mode, **limit)
    with peer.answer() as device:
        device.sendall(b"1\n2\n3\n")
        *rows, (_, trailer) = messages(reader)
    assert trailer["ended"] == "limit reached"
    assert trailer["rows"] == sum(len(each) for each, _ in rows) <= limit.get("limit_rows", 3)


def test_a_device_that_goes_is_the_end(peer: HandmadeDevice, read: Read, mode: str) -> None:
    stream = messages(read(format="lines", mode=mode))
    with peer.answer() as device:
        device.sendall(b"last words\n")
        assert texts(next(stream)[0]) == ["last words"]
    (_, trailer) = list(stream)[-1]
    assert (trailer["ended"], trailer["rows"]) == ("device gone", 1) and trailer["why"]


def test_a_server_that_drains_is_the_end(peer: HandmadeDevice, read: Any, mode: str) -> None:
    stream = messages(read(format="lines", mode=mode))
    rest: list[dict[str, Any]] = []
    with peer.answer() as device:
        device.sendall(b"so far\n")
        assert texts(next(stream)[0]) == ["so far"]
        ending = threading.Thread(target=lambda: rest.extend(note for _, note in stream if note))
        ending.start()
        read.close()
        ending.join()
    assert [note["ended"] for note in rest] == ["server draining"]


def test_a_word_of_life_that_comes_a_moment_early_goes_on() -> None:
    """Else the next one would come after twice the time that clients are told."""
    assert HEARTBEAT_SECONDS + InThread.idle_seconds < OnLoop.idle_seconds <= 5.0
