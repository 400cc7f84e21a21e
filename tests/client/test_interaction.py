"""Both clients follow the simulated board and talk to it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from fastflight.client import AsyncFastFlightClient, AsyncInteraction, FastFlightClient, Interaction, ReadTimeout
from fastflight.errors import BusyError, ProtocolError, RequestError, Stopped, UnknownName
from fastflight.runtime.admission import Limits
from tests.support.refusals import refused
from tests.support.servers import ready_server, serving

# For waits that end as soon as something happens.
SOON = 60.0


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with ready_server({"demo": "sim:?telemetry=0"}) as location:
        yield location


@pytest.fixture
def client(location: str) -> Iterator[FastFlightClient]:
    with FastFlightClient(location) as client:
        yield client


def test_a_prompt_in_three_lines(client: FastFlightClient) -> None:
    with client.interact("demo", mode="sync") as repl:
        repl.send("print(6 * 7)\r")
        assert repl.read_until(b"42\r\n>>> ").endswith(b"print(6 * 7)\r\n42\r\n>>> ")
        with refused(BusyError, holder="an interactive session (a REPL)"):
            client.ls("demo")
    assert repl.rows.path == "async"
    assert (repl.rows.summary["ended"], repl.rows.summary["tx_bytes"]) == ("client ended", 13)
    with pytest.raises(Stopped):
        repl.send("too late")
    assert client.ls("demo")


def test_the_same_on_a_loop(location: str) -> None:
    async def main() -> None:
        async with AsyncFastFlightClient(location) as client:
            async with await client.interact("demo") as repl:
                await repl.send(b"print(6 * 7)\r")
                assert b"\r\n42\r\n" in await repl.read_until(b"42\r\n>>> ")
            assert repl.rows.summary["ended"] == "client ended"
            async with await client.session("demo", since_seq=0, limit_rows=2) as rows:
                assert (await rows.to_arrow())["seq"].to_pylist() == [0, 1]
            assert rows.gaps == []

    asyncio.run(main())


def test_what_the_device_never_says_is_waited_for_as_long_as_asked(client: FastFlightClient) -> None:
    with client.interact("demo") as repl:
        repl.send("print(6 * 7)\r")
        came = b""
        while b"42\r\n>>> " not in came:
            with pytest.raises(ReadTimeout, match="the device did not say b'never' within 0.05 s") as timeout:
                repl.read_until(b"never", timeout=0.05)
            came = timeout.value.data
        # What came is still there, and the session goes on.
        assert repl.read_until(b">>> ", timeout=0) == came
        repl.send("print(7 * 7)\r")
        assert repl.read_until(b"49\r\n>>> ", timeout=SOON).startswith(b"print(7 * 7)\r\n")
        with pytest.raises(ReadTimeout, match="and nothing else") as timeout:
            repl.read_until(b"never", timeout=0)
        assert timeout.value.data == b""
    assert repl.rows.summary["ended"] == "client ended"
    with pytest.raises(LookupError), client.interact("demo") as repl:
        with pytest.raises(ReadTimeout):
            repl.read_until(b"never", timeout=0)
        raise LookupError


def test_a_session_that_is_over_holds_no_connection(client: FastFlightClient) -> None:
    gc.disable()  # a call that only a collection of cycles ends keeps its connection, for as long as none comes
    try:
        with client.interact("demo") as repl:
            repl.send("print(6 * 7)\r")
            repl.read_until(b"42\r\n>>> ")
        rows = weakref.ref(repl.rows)
        del repl
        assert rows() is None
    finally:
        gc.enable()


def test_a_session_that_is_left_is_over(client: FastFlightClient) -> None:
    with pytest.raises(LookupError), client.interact("demo") as repl:
        raise LookupError
    assert client.ls("demo")
    with pytest.raises((Stopped, ProtocolError)):
        repl.read_until(b"never")


@pytest.mark.parametrize("by", ["its end", "reading"])
def test_a_client_that_sends_nothing_gives_the_board_to_one_that_asks(by: str) -> None:
    """A client that only reads cannot be told by the end of the call: that waits for the client's."""
    limits = Limits(idle_seconds=1e-6)
    with (
        serving({"demo": "sim:?telemetry=0"}, limits=limits) as running,
        FastFlightClient(running.location) as client,
    ):
        repl = client.interact("demo")
        assert client.ls("demo")
        with pytest.raises(Stopped, match="nothing was sent for 0 s, and somebody else asked for the device"):
            repl.close() if by == "its end" else repl.read_until(b"never")
        figures = client.stats()["figures"]
        assert figures["fastflight_device_evicted_total"] == [[{"device": "demo"}, 1]]
        repl.cancel()
        repl.settle()


def test_refusals_come_at_once(client: FastFlightClient) -> None:
    with pytest.raises(UnknownName):
        client.interact("dmeo")
    with refused(RequestError, where="schema"):
        client.interact("demo", format="csv")


def test_parity_of_interactions() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(Interaction) - {"close", "done", "settle"} == public(AsyncInteraction) - {"aclose"}
