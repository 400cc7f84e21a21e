"""The servers that tests start: they listen, they end, and one that does not start says why."""

from __future__ import annotations

import signal

import pytest

from fastflight.client import FastFlightClient
from tests.support.servers import running, serving


def test_a_server_in_this_process() -> None:
    with serving({"one": "sim:", "two": "sim:"}) as server, FastFlightClient(server.location) as client:
        assert [device.name for device in client.devices()] == ["one", "two"]


def test_a_server_in_a_process_of_its_own_ends_with_its_block() -> None:
    with running("--http", "0") as server:
        assert server.read_until(r"listening on (http://127\.0\.0\.1:\d+)")
        assert server.location.startswith("grpc://127.0.0.1:")
        server.process.send_signal(signal.SIGSTOP)
    assert server.process.returncode == -signal.SIGKILL


def test_a_server_that_does_not_start_is_quoted() -> None:
    with pytest.raises(AssertionError, match="no-such-option"), running("--no-such-option"):
        pass


def test_all_that_a_server_printed_is_there_when_it_has_ended() -> None:
    with running("--drain", "0") as server:
        assert server.end() == 0
        assert server.lines[0].startswith("listening on ")
        with pytest.raises(AssertionError, match="ended without"):
            server.read_until("never")
