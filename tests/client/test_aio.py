"""The async client: the sync one's names, and streams that leave nothing behind."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastflight.client import AsyncFastFlightClient, AsyncRowStream, FastFlightClient, RowStream
from fastflight.errors import DeviceException, ProtocolError, Stopped, TransportClosed, UnknownName
from tests.client.handmade_server import READINGS, HandmadeServer
from tests.support.waiting import auntil

SOON = 60.0
# A send of so much waits for a server that takes nothing: gRPC holds about 4 MB of it.
MORE_THAN_WAITS = 16 * 1024 * 1024


@pytest.fixture
def server() -> Iterator[HandmadeServer]:
    with HandmadeServer() as server:
        yield server


def signatures(cls: type) -> dict[str, list[str]]:
    return {
        name: [str(p) for p in inspect.signature(member).parameters.values()]
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") or name == "__init__"
    }


def test_parity_of_the_clients() -> None:
    sync, asynchronous = signatures(FastFlightClient), signatures(AsyncFastFlightClient)
    assert sync.pop("close") == asynchronous.pop("aclose")
    assert sync == asynchronous
    plain = {"__init__", "aclose", "live", "scan"}  # what these return makes calls of its own
    assert all(
        inspect.iscoroutinefunction(getattr(AsyncFastFlightClient, name)) for name in asynchronous if name not in plain
    )


def test_parity_of_the_streams() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(AsyncRowStream) | {"reporting", "schema"} == public(RowStream) - {"pieces"} | {"schema"}


def test_a_file_becomes_a_table(server: HandmadeServer) -> None:
    async def main() -> None:
        seen: list[int] = []
        async with AsyncFastFlightClient(server.location) as client:
            stream = await client.read("demo", "/readings.csv", progress=lambda rows, size, total: seen.append(rows))
            assert stream.path == "async"
            assert (await stream.to_arrow()).replace_schema_metadata(None).equals(READINGS)
            assert stream.summary["rows"] == seen[-1] == 10
            assert len(await (await client.read("demo", "/readings.csv")).to_pandas()) == 10

    asyncio.run(main())


def test_failures_come_after_the_rows_before_them(server: HandmadeServer) -> None:
    async def main() -> int:
        rows = 0
        async with AsyncFastFlightClient(server.location) as client:
            with pytest.raises(DeviceException):
                async for batch in await client.read("demo", "/raises.csv"):
                    rows += batch.num_rows
            with pytest.raises(UnknownName):
                await client.read("elsewhere", "/readings.csv")
            with pytest.raises(ProtocolError):
                await (await client.read("demo", "/short.csv")).to_arrow()
        return rows

    assert asyncio.run(main()) == 4


def test_a_stream_that_is_left_ends_its_thread(server: HandmadeServer) -> None:
    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            async with await client.read("demo", "/endless.csv") as stream:
                assert (await anext(stream)).num_rows == 4
                assert "fastflight-reader" in {thread.name for thread in threading.enumerate()}
            assert "fastflight-reader" not in {thread.name for thread in threading.enumerate()}
            with pytest.raises(Stopped):
                await anext(stream)

    asyncio.run(main())


def test_cancelling_wakes_whoever_iterates(server: HandmadeServer) -> None:
    async def main() -> None:
        async with (
            AsyncFastFlightClient(server.location) as client,
            await client.read("demo", "/endless.csv") as stream,
        ):
            reading = asyncio.ensure_future(stream.to_arrow())
            await asyncio.sleep(0)
            stream.cancel()
            with pytest.raises(Stopped):
                await reading

    asyncio.run(main())


def test_rows_are_written(server: HandmadeServer) -> None:
    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            assert (await client.write("demo", "/new.csv", READINGS)).rows == 10
            assert [device.name for device in await client.devices()] == ["demo"]

    asyncio.run(main())
    assert "/new.csv" in server.files


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.read("demo", "/readings.csv"),
        lambda client: client.interact("demo"),
        lambda client: client.remove("demo", "/old.csv"),
        lambda client: client.stat("demo", "/old.csv"),
    ],
)
def test_a_call_that_is_cancelled_before_it_has_a_thread_is_not_made(
    server: HandmadeServer,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[AsyncFastFlightClient], Coroutine[Any, Any, object]],
) -> None:
    """It would take the device for nothing, and stop what runs there; what is removed would be gone."""
    monkeypatch.setattr("fastflight.client.aio.MAX_CALLS", 1)
    go_on = threading.Event()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            busy = client._threads.submit(go_on.wait)
            asking = asyncio.ensure_future(ask(client))
            for _ in range(3):
                await asyncio.sleep(0)
            asking.cancel()
            asyncio.get_running_loop().call_soon(go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wrap_future(busy)
            await asyncio.wrap_future(client._threads.submit(bool))  # after the calls that waited before

    asyncio.run(main())
    assert server.asked == []


def test_slow_writes_keep_no_other_call_from_its_answer(server: HandmadeServer) -> None:
    """However few threads the loop has: it has six on a computer with two cores."""
    server.acknowledge.clear()

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with AsyncFastFlightClient(server.location) as client:
            writing = [asyncio.ensure_future(client.write("demo", f"/{n}.csv", READINGS)) for n in range(3)]
            await auntil(lambda: len(server.asked) == len(writing))
            async with asyncio.timeout(SOON):
                assert [device.name for device in await client.devices()] == ["demo"]
            server.acknowledge.set()
            await asyncio.gather(*writing)

    asyncio.run(main())
    assert len(server.files) == 3


def test_a_client_that_was_closed_makes_no_calls(server: HandmadeServer) -> None:
    async def main() -> None:
        client = AsyncFastFlightClient(server.location)
        await client.aclose()
        with pytest.raises(TransportClosed, match="closed"):
            await client.devices()

    asyncio.run(main())


def test_a_write_can_be_given_up_until_it_is_acknowledged(
    server: HandmadeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task ends although the server never answers."""
    monkeypatch.setattr("fastflight.client.threads.CANCEL_SECONDS", 0.1)
    server.acknowledge.clear()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            writing = asyncio.ensure_future(client.write("demo", "/new.csv", READINGS))
            await asyncio.to_thread(server.took.wait)  # all that there is has been sent
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            server.acknowledge.set()

    asyncio.run(main())
    assert server.files == {}


def test_closing_waits_for_no_answer(server: HandmadeServer) -> None:
    """A call that was given up keeps its thread until the server answers, and there may be no other."""
    server.acknowledge.clear()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            reading = asyncio.ensure_future(client.read("demo", "/late.csv"))
            await auntil(server.took.is_set)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        server.acknowledge.set()

    asyncio.run(main())


def test_a_stream_goes_on_though_its_client_was_closed(server: HandmadeServer) -> None:
    with FastFlightClient(server.location) as client:
        stream = client.read("demo", "/readings.csv")
    assert stream.to_arrow().num_rows == 10
    with pytest.raises(TransportClosed, match="closed"):
        client.devices()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            stream = await client.read("demo", "/readings.csv")
        async with stream:
            assert (await stream.to_arrow()).num_rows == 10

    asyncio.run(main())


def test_the_loop_goes_on_while_a_session_is_ended_whose_send_was_given_up(server: HandmadeServer) -> None:
    server.acknowledge.clear()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client, await client.interact("demo") as repl:
            sending = asyncio.ensure_future(repl.send(bytes(MORE_THAN_WAITS)))
            await auntil(repl._interaction._sending._lock.locked)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            closing = asyncio.ensure_future(repl.aclose())
            await asyncio.sleep(0)
            server.acknowledge.set()  # as another task of the loop would
            await closing

    asyncio.run(main())


def test_a_session_that_is_cancelled_as_it_is_opened_is_given_back_whole(
    server: HandmadeServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.acknowledge.clear()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            opening = asyncio.ensure_future(client.interact("late"))
            await auntil(server.took.is_set)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            server.acknowledge.set()

    asyncio.run(main())
    assert capfd.readouterr().err == ""  # where Arrow complains of a writer that nobody has closed


@pytest.mark.parametrize("turns", range(4))
def test_a_session_that_is_cancelled_again_as_it_is_left_is_given_back_whole(
    server: HandmadeServer, capfd: pytest.CaptureFixture[str], turns: int
) -> None:
    async def talk(client: AsyncFastFlightClient) -> None:
        async with await client.interact("demo"):
            talking.set()
            await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncFastFlightClient(server.location) as client:
            task = asyncio.ensure_future(talk(client))
            await talking.wait()
            task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    talking = asyncio.Event()
    asyncio.run(main())
    assert capfd.readouterr().err == ""
