"""The proxy between two sockets: each kind of fault as a client sees it."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos import Break, ChaosProxy, Course, Fault, Kind, Pass, Step, drawn

SOON = 60.0
DATA = bytes(range(256)) * 40


class EchoServer:
    """Says what it hears, to any number of clients."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SOON)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._say, args=(stream,)))
                self._threads[-1].start()

    def _say(self, stream: socket.socket) -> None:
        with stream, suppress(OSError):
            while data := stream.recv(4096):
                stream.sendall(data)


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    echo = EchoServer()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[ChaosProxy]:
    with ChaosProxy("127.0.0.1", echo.port, seed=1) as proxy:
        yield proxy


def connected(proxy: ChaosProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON)


def heard(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


def said(client: socket.socket, data: bytes) -> bytes:
    """What comes back of `data`, which is all of it unless the connection ends."""
    client.sendall(data)
    return heard(client, len(data))


def test_without_faults_it_is_not_noticed(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        assert said(client, DATA) == DATA
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert proxy.connections == 1


@pytest.mark.parametrize(
    "spec", ["slice:out@7=0", "slice:back@0=100", "delay:back@0=0.001", "pause:out@9=0.05", "throttle:back@0=500000"]
)
def test_what_only_takes_longer_changes_nothing(proxy: ChaosProxy, spec: str) -> None:
    with connected(proxy) as client:
        proxy.strike(spec)
        assert said(client, DATA) == DATA
    assert proxy.mend() == [spec.partition("@")[0]]


@pytest.mark.parametrize(("way", "at"), [("out", 5), ("back", 10_000)])
def test_a_flipped_bit(proxy: ChaosProxy, way: str, at: int) -> None:
    with connected(proxy) as client:
        proxy.strike(f"flip:{way}@{at}=0")
        expected = bytearray(DATA)
        expected[at] ^= 1
        assert said(client, DATA) == expected
        assert said(client, DATA) == DATA


def test_an_end_and_a_cut_are_told_apart(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        proxy.strike("end:back@100")
        assert said(client, DATA) == DATA[:100]
    with connected(proxy) as client:
        proxy.strike("cut:back@0")
        with pytest.raises(ConnectionResetError):
            said(client, DATA)
    # Each strikes once: this one is whole again.
    with connected(proxy) as client:
        assert said(client, DATA) == DATA
    assert proxy.mend() == ["end:back", "cut:back"]


def test_silence_without_an_end_lasts_until_it_is_mended(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        proxy.strike("silence:back@0")
        client.sendall(DATA)
        client.settimeout(0.1)
        # What was said may take its time as far as the proxy: mended before that, nothing would have been swallowed.
        struck = False
        while not struck:
            struck = proxy.has_struck
            with pytest.raises(TimeoutError):
                client.recv(1)
        client.settimeout(SOON)
        proxy.mend()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_time_comes_without_a_byte(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        assert said(client, b"a") == b"a"
        proxy.strike("end:out@0.01s")
        assert client.recv(1) == b""


def test_pulled_and_plugged_in_again(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        assert said(client, b"a") == b"a"
        proxy.unplug()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1)
    proxy.plug()
    with connected(proxy) as client:
        assert said(client, b"b") == b"b"


def test_a_target_that_is_not_there_resets(proxy: ChaosProxy, echo: EchoServer) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # nobody else has the port, and nobody listens on it
        proxy.aim(deaf.getsockname()[1])
        with pytest.raises(ConnectionResetError), connected(proxy) as client:
            client.recv(1)
    proxy.aim(echo.port)
    with connected(proxy) as client:
        assert said(client, b"b") == b"b"


@given(st.lists(st.sampled_from(Kind), max_size=5), st.integers(0, 2**16), st.lists(st.integers(1, 60)))
def test_any_division_gives_the_same_bytes_and_the_same_end(kinds: list[Kind], seed: int, sizes: list[int]) -> None:
    chance = random.Random(seed)
    faults = [drawn(chance, kind, 250, 1) for kind in kinds]
    assert [Fault.parse(str(fault)) for fault in faults] == faults
    whole = list(Course(faults).feed(DATA))
    course, divided, rest = Course(faults), list[Step](), DATA
    for size in [*sizes, len(DATA)]:
        piece, rest = rest[:size], rest[size:]
        divided += course.feed(piece)
        if divided and isinstance(divided[-1], Break):
            break
    assert passed(divided) == passed(whole)
    assert [step for step in divided if isinstance(step, Break)] == [step for step in whole if isinstance(step, Break)]


def passed(steps: list[Step]) -> bytes:
    return b"".join(step.data for step in steps if isinstance(step, Pass))
