"""Serial ports to test."""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fastflight.transport import parse_url
from fastflight.transport.pacing import Pacing
from fastflight.transport.serial import SerialAddress
from fastflight.transport.serial_port import SerialPort
from tests.support.ports import open_port

from .serial_bench import NEVER_MS, PATIENCE, SerialBench


@pytest.fixture
def opening() -> Iterator[Callable[..., SerialBench]]:
    ports: list[SerialPort] = []
    descriptors: list[int] = []

    def open_bench(drain: int = 1024, drain_ms: int = NEVER_MS, chunk: int = 4096) -> SerialBench:
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        descriptors.extend((ours, theirs))
        name, pacing = os.ttyname(theirs), Pacing(drain, drain_ms, chunk)
        address = parse_url(f"serial:{name}")
        assert isinstance(address, SerialAddress)
        ports.append(open_port(replace(address, pacing=pacing), PATIENCE))
        return SerialBench(ports[-1], ours)

    yield open_bench
    for port in ports:
        port.close()
    for descriptor in descriptors:
        os.close(descriptor)
    assert not [thread.name for thread in threading.enumerate() if thread.name == "line"]


@pytest.fixture
def bench(opening: Callable[..., SerialBench]) -> SerialBench:
    return opening()
