"""The bare end of a line: through a bridge both ways, and before a device that is not honest."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from fastflight.errors import DataError, TransportClosed
from fastflight_benchmark.suites.bridge import rows, traffic
from fastflight_benchmark.suites.bridge.device import ESCAPED, RANDOM, content, serve
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217, endpoint
from fastflight_benchmark.suites.bridge.wire import Wire
from tests.support.bridged import bridged


@pytest.fixture
def device() -> Iterator[str]:
    """`host:port` of a null device for one client."""

    def run() -> None:
        client, _ = listener.accept()
        with client:
            serve(client.fileno())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=run)
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        serving.join()


@pytest.mark.parametrize("port", [RAW, RFC2217])
def test_content_crosses_a_bridge_both_ways(device: str, port: str) -> None:
    with bridged(f"socket://{device}") as urls:
        address = endpoint(urls["socket" if port == RAW else "rfc2217"].partition("://")[2])
        with Wire.to(address, port) as wire:
            for kind in (RANDOM, ESCAPED):
                assert wire.take(kind, 20_000) > 0
                assert wire.give(kind, 20_000) > 0
            wire.echo(2)
            assert wire.round_trip() > 0


def pair(port: str = RAW) -> tuple[Wire, socket.socket]:
    ours, theirs = socket.socketpair()
    return Wire(ours.detach(), port), theirs


def answer(device: socket.socket, *dialogue: bytes) -> None:
    """Expect the first, say the second, and so on."""
    for asked, said in zip(dialogue[::2], dialogue[1::2], strict=True):
        assert device.recv(len(asked), socket.MSG_WAITALL) == asked
        device.sendall(said)


@pytest.mark.parametrize("said", [b"y", b""])
def test_a_byte_that_does_not_come_back_took_no_time(said: bytes) -> None:
    wire, device = pair()
    with wire, device:
        device.sendall(said)
        device.shutdown(socket.SHUT_WR)
        with pytest.raises(DataError, match="came back"):
            wire.round_trip()


class Closing:
    """A line that ends at the first round trip that counts."""

    def __init__(self) -> None:
        self.left = traffic.WARM_UP

    def __enter__(self) -> Closing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def echo(self, count: int) -> None:
        pass

    def round_trip(self) -> float:
        self.left -= 1
        if self.left < 0:
            raise DataError("b'' came back, and not what was sent")
        return 1.0


class Lasting(Closing):
    def round_trip(self) -> float:
        return 1.0


def test_round_trips_of_a_line_that_ends_fail_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = traffic.WAYS[1]
    monkeypatch.setattr(traffic, "_reached", lambda way: Closing() if way == ended else Lasting())
    result = rows.summarize(rows.frame(traffic.round_trips(3)))
    at = result[(result["device"] == ended.device) & (result["work"] == traffic.ROUND_TRIP)]
    ours = at[(at["server"] == ended.server) & (at["port"] == ended.port)]
    assert ours[["count", "failed"]].values.tolist() == [[0, 1]]
    assert set(at.drop(ours.index)["count"]) == {3}


def test_a_device_that_gives_other_bytes_is_found_out() -> None:
    wire, device = pair()
    with wire, device:
        telling = threading.Thread(target=answer, args=(device, b"give 9 random\n", b"ready\n", b"go\n", b"not these"))
        telling.start()
        with pytest.raises(DataError, match="not what the device sent"):
            wire.give(RANDOM, 9)
        telling.join()


def test_a_device_that_got_other_bytes_is_found_out() -> None:
    wire, device = pair()
    with wire, device:
        told = b"k" + b"0" * 64 + b"\n"
        telling = threading.Thread(target=answer, args=(device, b"take 9\n", b"ready\n", content(RANDOM, 9), told))
        telling.start()
        with pytest.raises(DataError, match="what the device got is not what was sent"):
            wire.take(RANDOM, 9)
        telling.join()


def test_a_line_that_ends_early_is_said_to_be_closed() -> None:
    wire, device = pair()
    with wire:
        device.sendall(b"ready\n")
        device.shutdown(socket.SHUT_WR)
        with pytest.raises(TransportClosed):
            wire.give(RANDOM, 9)
        device.close()


@pytest.mark.parametrize(("port", "crosses"), [(RAW, b"\xff\x00"), (RFC2217, b"\xff\xff\x00")])
def test_only_telnet_doubles(port: str, crosses: bytes) -> None:
    wire, device = pair(port)
    with wire, device:
        assert wire.encoded(b"\xff\x00") == crosses
