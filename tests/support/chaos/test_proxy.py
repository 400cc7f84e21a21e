"""The proxy between two sockets: each kind of fault as a client sees it."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos import Break, ChaosProxy, Course, Fault, Kind, Pass, Step, drawn

SOON = 60.0
DATA = bytes(range(256)) * 40


class Echo(socketserver.BaseRequestHandler):
    """Sends back what it receives."""

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(4096):
                self.request.sendall(data)


@pytest.fixture
def proxy() -> Iterator[ChaosProxy]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as echo:
        serving = threading.Thread(target=echo.serve_forever, args=(0.01,))
        serving.start()
        with ChaosProxy("127.0.0.1", echo.server_address[1], seed=1) as proxy:
            yield proxy
        echo.shutdown()
        serving.join()


def connected(proxy: ChaosProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=SOON)


def echoed(client: socket.socket, data: bytes) -> bytes:
    """What comes back of `data`, which is all of it unless the connection ends."""
    client.sendall(data)
    received = b""
    while len(received) < len(data) and (more := client.recv(len(data) - len(received))):
        received += more
    return received


@pytest.mark.parametrize("spec", ["slice:out@7=0", "delay:back@0=0.001", "pause:out@9=0.05", "throttle:back@0=500000"])
def test_what_only_takes_longer_changes_nothing(proxy: ChaosProxy, spec: str) -> None:
    with connected(proxy) as client:
        assert echoed(client, DATA) == DATA
        proxy.strike(spec)
        assert echoed(client, DATA) == DATA
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert (proxy.mend(), proxy.connections) == ([spec.partition("@")[0]], 1)


@pytest.mark.parametrize(("way", "at"), [("out", 5), ("back", 10_000)])
def test_a_flipped_bit(proxy: ChaosProxy, way: str, at: int) -> None:
    with connected(proxy) as client:
        proxy.strike(f"flip:{way}@{at}=0")
        expected = bytearray(DATA)
        expected[at] ^= 1
        assert echoed(client, DATA) == expected
        assert echoed(client, DATA) == DATA


def test_an_end_and_a_cut_are_told_apart_and_strike_once(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        proxy.strike("end:back@100")
        assert echoed(client, DATA) == DATA[:100]
    with connected(proxy) as client:
        proxy.strike("cut:back@0")
        with pytest.raises(ConnectionResetError):
            echoed(client, DATA)
    with connected(proxy) as client:
        assert echoed(client, DATA) == DATA
        proxy.strike("end:out@0.01s")  # at a time, without a byte
        assert client.recv(1) == b""
    assert proxy.mend() == ["end:back", "cut:back", "end:out"]


def test_silence_without_an_end_lasts_until_it_is_mended(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        proxy.strike("silence:back@0")
        client.sendall(DATA)
        client.settimeout(0.1)
        # The data may take its time as far as the proxy: mended before that, nothing would have been swallowed.
        struck = False
        while not struck:
            struck = proxy.has_struck
            with pytest.raises(TimeoutError):
                client.recv(1)
        client.settimeout(SOON)
        proxy.mend()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_pulled_and_plugged_in_again(proxy: ChaosProxy) -> None:
    with connected(proxy) as client:
        assert echoed(client, b"a") == b"a"
        proxy.unplug()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1)
    proxy.plug()
    with connected(proxy) as client:
        assert echoed(client, b"b") == b"b"


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
