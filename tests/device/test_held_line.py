"""A line that is held to write to it: what is sent when it is given back."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from fastflight.device.held_line import WRITE_BYTES, LineThread
from fastflight.errors import TransportError, TransportTimeout
from fastflight.transport import Port

SOON = 20.0


class SlowPort:
    """One that takes a piece when it `may`, and says nothing."""

    def __init__(self) -> None:
        self.taken = b""
        self.asked, self.may = threading.Event(), threading.Event()

    def write(self, data: bytes, timeout: float) -> None:
        self.asked.set()
        assert self.may.wait(SOON)
        self.taken += data

    def read(self, timeout: float) -> bytes:
        raise TransportTimeout("silent")


def test_what_is_being_sent_when_it_is_given_back_is_broken_off() -> None:
    """A client that leaves does not keep the device for as long as the line takes for what it pasted."""
    port, broke, lost = SlowPort(), threading.Event(), list[TransportError]()
    with LineThread(cast(Port, port), lost.append) as line:

        def send() -> None:
            with pytest.raises(TransportError, match="given back"):
                line.send(bytes(100 * WRITE_BYTES))
            broke.set()

        sending = threading.Thread(target=send)
        sending.start()
        assert port.asked.wait(SOON)
        line.give_back()
        port.may.set()
        assert broke.wait(SOON)
        sending.join()
        with pytest.raises(TransportError, match="given back"):
            line.send(b"more")
    assert len(port.taken) == WRITE_BYTES
    assert lost == [] and line.failure is None


def test_what_is_sent_whole_is_said_to_be() -> None:
    port = SlowPort()
    port.may.set()
    with LineThread(cast(Port, port), lambda error: None) as line:
        line.send(bytes(3 * WRITE_BYTES))
        assert len(port.taken) == 3 * WRITE_BYTES
