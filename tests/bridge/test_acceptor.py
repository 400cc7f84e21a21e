"""A listening port: who comes is met, whatever the process lacks, and the port is given back whole."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from fastflight.bridge import acceptor as acceptors
from fastflight.bridge.acceptor import Acceptor, open_listener


class Greeter(asyncio.Protocol):
    """Says hello and goodbye."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"hello")
        transport.close()


def act(scene: Callable[[Acceptor], Awaitable[None]], host: str = "127.0.0.1") -> None:
    async def run() -> None:
        acceptor = Acceptor(await open_listener(host, 0), Greeter)
        try:
            await scene(acceptor)
        finally:
            await acceptor.aclose()

    asyncio.run(run())


async def greeted(acceptor: Acceptor, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, acceptor.port)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_who_comes_is_met_at_every_address_of_this_computer(host: str) -> None:
    async def scene(acceptor: Acceptor) -> None:
        assert [await greeted(acceptor, host) for _ in range(3)] == [b"hello"] * 3

    if host == "::1" and not _has_ipv6():
        pytest.skip("this computer has no IPv6")
    act(scene, host)


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_port_is_free_at_once_though_connections_to_it_linger() -> None:
    async def scene(acceptor: Acceptor) -> None:
        # The side that closes first keeps the connection's remains: here the acceptor's.
        assert await greeted(acceptor) == b"hello"
        port = acceptor.port
        await acceptor.aclose()
        again = Acceptor(await open_listener("127.0.0.1", port), Greeter)
        assert await greeted(again) == b"hello"
        await again.aclose()

    act(scene)


def test_a_port_that_is_taken_cannot_be_had() -> None:
    async def scene(acceptor: Acceptor) -> None:
        with pytest.raises(OSError) as refused:
            await open_listener("127.0.0.1", acceptor.port)
        assert refused.value.errno == errno.EADDRINUSE

    act(scene)


class ShortOfDescriptors:
    """A listener in a process that has no descriptor left, for so many calls."""

    def __init__(self, listener: socket.socket, calls: int) -> None:
        self._listener = listener
        self.calls = calls

    def accept(self) -> object:
        self.calls -= 1
        if self.calls >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)


async def test_a_process_without_descriptors_accepts_when_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "SHORTAGE_SECONDS", 0.01)
    listener = ShortOfDescriptors(await open_listener("127.0.0.1", 0), 3)
    acceptor = Acceptor(listener, Greeter)  # type: ignore[arg-type]
    assert await greeted(acceptor) == b"hello"
    await acceptor.aclose()


async def test_closed_while_it_has_no_descriptors_it_tries_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "SHORTAGE_SECONDS", 0)
    listener = ShortOfDescriptors(await open_listener("127.0.0.1", 0), 1_000_000)
    acceptor = Acceptor(listener, Greeter)  # type: ignore[arg-type]
    with socket.create_connection(("127.0.0.1", acceptor.port)):
        for _ in range(10):
            await asyncio.sleep(0)
        await acceptor.aclose()
        tried = listener.calls
        for _ in range(10):
            await asyncio.sleep(0)
        assert tried < 1_000_000
        assert listener.calls == tried
