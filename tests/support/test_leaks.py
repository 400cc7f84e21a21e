"""The leak check sees what it is for. What it takes for a leak by mistake, the tests of all folders show."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.commands import FASTFLIGHT, Command
from tests.support.leaks import held, leaked

CHILD = [sys.executable, "-c", "input()"]


@contextmanager
def connection() -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        yield


@contextmanager
def thread() -> Iterator[None]:
    done = threading.Event()
    stray = threading.Thread(target=done.wait, name="stray")
    stray.start()
    yield
    done.set()


HOLDERS: dict[str, tuple[Callable[[], AbstractContextManager[object]], str]] = {
    "a socket": (socket.socket, r"descriptor \d+: socket:.*"),
    "a connection": (connection, r"descriptor \d+: socket:.*, TCP from port \d+ to \d+, state 1"),
    "a thread": (thread, "thread 'stray'"),
    "a child": (lambda: subprocess.Popen(CHILD, stdin=subprocess.PIPE), r"child process \d+: .*input\(\)"),
    "a forked command": (
        lambda: Command([*FASTFLIGHT, "eval", "-", "--device", "sim:"], stdin=subprocess.PIPE),
        r"child process \d+: .*",
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors and children are read from /proc")
@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_open_is_a_leak_until_it_is_closed(name: str) -> None:
    opened, expected = HOLDERS[name]
    before = held()
    with opened():
        lines = leaked(before, within=0)
    assert any(re.fullmatch(expected, line) for line in lines), lines
    assert leaked(before) == []
