"""The relay at the gateway's port: who may come in, other people's WebSocket client, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.utils import accept_key

from fastflight.concurrency import Shard
from fastflight.errors import RequestError
from fastflight.gateway import Gateway, listen
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.relay.relay import MAX_CLIENTS, Relay
from fastflight.gateway.relay.targets import AllowedTargets
from fastflight.protocol.relay import Closed, End, Opened, Reason, RelayConnection, RelayData

from ..server.conftest import SOON
from .relay_user import LOCAL, deaf, echo, nothing, target

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.fixture
def relay() -> Relay:
    return Relay(AllowedTargets(LOCAL), OriginPolicy(["http://page.example"]))


@pytest.fixture
def gateway(relay: Relay) -> Iterator[Gateway]:
    with listen(nothing, Shard("gateway").start(), 0, relay=relay) as gateway:
        yield gateway


def handshake(gateway: Gateway, path: str = "/relay", **headers: str) -> tuple[socket.socket, bytes]:
    """A connection, and the head of the answer."""
    sent = {
        "Host": f"127.0.0.1:{gateway.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
    sock = socket.create_connection(("127.0.0.1", gateway.port))
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer and (came := sock.recv(4096)):
        answer += came
    return sock, answer


def test_a_handshake_is_answered_as_the_standard_says(gateway: Gateway) -> None:
    sock, answer = handshake(gateway)
    with sock:
        assert answer.startswith(b"HTTP/1.1 101 ") and f"sec-websocket-accept: {accept_key(KEY)}".encode() in answer
        assert accept_key(KEY) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455, 1.3


def test_one_that_comes_as_the_relay_closes_is_let_go() -> None:
    """Cancelled before its first step, nothing of what takes care of it runs."""

    async def main() -> bytes:
        relay, loop = Relay(AllowedTargets(LOCAL), OriginPolicy()), asyncio.get_running_loop()
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)
        with theirs:
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
            relay.take_over(transport, [])
            await relay.aclose()
            return await asyncio.wait_for(loop.sock_recv(theirs, 1), SOON)

    assert asyncio.run(main()) == b""


def test_one_that_is_refused_and_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.relay.relay.REFUSED_SECONDS", 0.05)

    async def main() -> None:
        relay, loop = Relay(AllowedTargets(LOCAL), OriginPolicy()), asyncio.get_running_loop()
        lost = loop.create_future()

        class Answered(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(None)

        theirs, ours = socket.socketpair()
        with theirs:
            transport, _ = await loop.connect_accepted_socket(Answered, ours)
            transport.write(bytes(16 * 1024 * 1024))
            relay.take_over(transport, [])
            await asyncio.wait_for(lost, SOON)

    asyncio.run(main())


def test_no_extension_is_ever_agreed_on(gateway: Gateway) -> None:
    sock, answer = handshake(gateway, Sec_WebSocket_Extensions="permessage-deflate")
    with sock:
        assert answer.startswith(b"HTTP/1.1 101 ") and b"extensions" not in answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": "c2hvcnQ="}, 400),
        ({"Sec_WebSocket_Key": "?"}, 400),
    ],
)
def test_who_may_not_come_in_gets_a_status_and_a_reason(
    gateway: Gateway, relay: Relay, headers: dict[str, str], status: int
) -> None:
    sock, answer = handshake(gateway, **headers)
    with sock:
        rest = answer.partition(b"\r\n\r\n")[2]
        while came := sock.recv(4096):
            rest += came
        assert answer.startswith(b"HTTP/1.1 %d " % status) and b'"what"' in rest
        assert relay.clients == 0


def test_pages_of_the_gateway_and_of_allowed_origins_come_in(gateway: Gateway) -> None:
    for origin in (gateway.url, "http://page.example"):
        sock, answer = handshake(gateway, Origin=origin)
        with sock:
            assert answer.startswith(b"HTTP/1.1 101 ")


def test_connections_have_a_limit(gateway: Gateway) -> None:
    with contextlib.ExitStack() as socks:
        for _ in range(MAX_CLIENTS):
            sock, answer = handshake(gateway)
            socks.enter_context(sock)
            assert answer.startswith(b"HTTP/1.1 101 ")
        sock, answer = handshake(gateway)
        socks.enter_context(sock)
        assert answer.startswith(b"HTTP/1.1 503 ")


def test_where_no_descriptor_is_left_it_is_said(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", none_left)
        sock, answer = handshake(gateway)
    with sock:
        assert answer.startswith(b"HTTP/1.1 503 ")
    sock, answer = handshake(gateway)
    with sock:
        assert answer.startswith(b"HTTP/1.1 101 ")


def test_plain_requests_are_not_the_relays(gateway: Gateway) -> None:
    sock, answer = handshake(gateway, Upgrade="", Connection="")
    with sock:
        assert answer.startswith(b"HTTP/1.1 204 ")


def test_the_websockets_library_gets_its_bytes(gateway: Gateway) -> None:
    async def work() -> None:
        side = RelayConnection(accepts=False)
        async with target(echo) as there, connect(gateway.url.replace("http", "ws") + "/relay") as ws:
            assert ws.protocol.extensions == []
            await ws.send(side.open(1, there))
            found, sent, over = bytearray(), 0, False
            while not over:
                message = await ws.recv()
                assert isinstance(message, bytes)
                for event in side.feed(message):
                    if isinstance(event, RelayData):
                        found += event.data
                        if given := side.consumed(1, len(event.data)):
                            await ws.send(given)
                    elif isinstance(event, End):
                        pass
                    elif isinstance(event, Closed):
                        assert event.reason == Reason.DONE
                        over = True
                    else:
                        assert sent or event == Opened(1)
                while size := min(side.credit(1), 1_000_000 - sent, 100_000):
                    await ws.send(side.data(1, size) + bytes([sent % 251]) * size)
                    sent += size
                    if sent == 1_000_000:
                        await ws.send(side.end(1))
            assert len(found) == sent
            await (await ws.ping())

    asyncio.run(work())


def test_the_websockets_library_is_told_why_it_ends(gateway: Gateway) -> None:
    async def work() -> None:
        async with connect(gateway.url.replace("http", "ws") + "/relay") as ws:
            await ws.send("text")
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1003
        with pytest.raises(InvalidStatus):
            await connect(gateway.url.replace("http", "ws") + "/relay", origin="http://evil.example")  # type: ignore[arg-type]

    asyncio.run(work())


def test_closing_the_gateway_ends_what_is_open(relay: Relay) -> None:
    async def work() -> None:
        gateway = listen(nothing, Shard("gateway").start(), 0, relay=relay)
        side = RelayConnection(accepts=False)
        async with target(deaf) as there, connect(gateway.url.replace("http", "ws") + "/relay") as ws:
            await ws.send(side.open(1, there))
            message = await ws.recv()
            assert isinstance(message, bytes) and list(side.feed(message)) == [Opened(1)]
            closing = asyncio.ensure_future(asyncio.to_thread(gateway.close))
            message = await ws.recv()
            assert isinstance(message, bytes)
            assert list(side.feed(message)) == [Closed(0, Reason.SHUTDOWN, "the gateway shuts down")]
            with pytest.raises(ConnectionClosed) as caught:
                await ws.recv()
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1001
            await closing
        assert relay.clients == 0

    asyncio.run(work())


def test_it_says_at_its_start_that_it_does_not_run_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, allowed = OriginPolicy([]), AllowedTargets(LOCAL)
    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        with pytest.raises(RequestError, match="does not run on Windows"):
            Relay(allowed, policy)
