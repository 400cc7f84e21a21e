"""Serial ports to test. Both writers are held to the same, unless a test names one."""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fastflight.transport import parse_url, serial_pump
from fastflight.transport.pacing import Pacing, Writer
from fastflight.transport.serial import SerialAddress
from fastflight.transport.serial_port import SerialPort

from .serial_bench import NEVER_MS, PATIENCE, Bench


@pytest.fixture(params=["asyncio", "thread", "thread that reads first"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Writer:
    """The last one takes bytes as on Windows, where nothing waits for them but a read."""
    if request.param == "thread that reads first":
        monkeypatch.setattr(serial_pump, "BY_DESCRIPTOR", False)
    return "asyncio" if request.param == "asyncio" else "thread"


@pytest.fixture
def opening(writer: Writer) -> Iterator[Callable[..., Bench]]:
    ports: list[SerialPort] = []
    descriptors: list[int] = []

    def open_port(drain: int = 1024, drain_ms: int = NEVER_MS, chunk: int = 4096) -> Bench:
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        descriptors.extend((ours, theirs))
        parsed = parse_url(f"serial://{os.ttyname(theirs)}")
        assert isinstance(parsed, SerialAddress)
        address = replace(parsed, pacing=Pacing(drain, drain_ms, chunk, writer))
        ports.append(address.open(PATIENCE))
        return Bench(ports[-1], address, ours)

    yield open_port
    for port in ports:
        port.close()
    for descriptor in descriptors:
        os.close(descriptor)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("serial ")]


@pytest.fixture
def bench(opening: Callable[..., Bench]) -> Bench:
    return opening()
