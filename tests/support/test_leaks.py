"""The leak check sees what it is for, and nothing else."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from tests.support.commands import FASTFLIGHT, Command
from tests.support.leaks import held, leaked

linux = pytest.mark.skipif(sys.platform != "linux", reason="descriptors and children are read from /proc")


def test_nothing_is_leaked_when_all_was_given_back() -> None:
    before = held()
    socket.socket().close()
    subprocess.run([sys.executable, "-c", ""], check=True)
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert leaked(before) == []


@linux
def test_an_open_socket_is_named_with_its_descriptor() -> None:
    before = held()
    with socket.socket() as left:
        (line,) = leaked(before, within=0)
        assert line.startswith(f"descriptor {left.fileno()}: socket:")


@linux
def test_a_socket_of_tcp_is_named_with_both_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        before = held()
        with socket.create_connection(("127.0.0.1", port)) as left:
            (line,) = leaked(before, within=0)
            assert line.endswith(f", TCP from port {left.getsockname()[1]} to {port}, state 1")


@linux
def test_a_file_behind_a_descriptor_number_that_was_free_before_is_seen() -> None:
    first = os.open(os.devnull, os.O_RDONLY)
    before = held()
    os.close(first)
    ends = os.pipe()
    try:
        assert len(leaked(before, within=0)) == 2
    finally:
        for end in ends:
            os.close(end)


def test_a_thread_that_ends_in_time_is_no_leak_and_one_that_stays_is() -> None:
    before = held()
    done = threading.Event()
    stray = threading.Thread(target=done.wait, name="stray")
    stray.start()
    assert leaked(before, within=0) == ["thread 'stray'"]
    done.set()
    assert leaked(before) == []


@linux
@pytest.mark.parametrize("daemon", [False, True])
def test_what_a_thread_leaves_in_a_circle_when_it_ends_is_no_leak(daemon: bool) -> None:
    """However late it does: here right after the first look for such circles. Nor if the thread is in no list."""

    class Circle:
        def __init__(self) -> None:
            self.descriptor, self.way_back = os.open(os.devnull, os.O_RDONLY), self

        def __del__(self) -> None:
            os.close(self.descriptor)

    def collected(phase: str, info: object) -> None:
        if phase == "stop":
            done.set()

    def hold() -> None:
        circle = Circle()
        held_now.set()
        done.wait()
        del circle

    before, held_now, done = held(), threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, daemon=daemon)
    thread.start()
    held_now.wait()
    gc.callbacks.append(collected)
    try:
        assert leaked(before) == []
    finally:
        gc.callbacks.remove(collected)


def test_a_daemon_thread_holds_nobody_up() -> None:
    before = held()
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    assert leaked(before, within=0) == []
    done.set()
    thread.join()


@linux
def test_a_child_is_named_by_its_command_until_it_is_waited_for() -> None:
    before = held()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pipe, process = leaked(before, within=0)
    assert pipe.startswith("descriptor")
    assert f"child process {child.pid}" in process and "input()" in process
    child.communicate(b"\n")
    assert leaked(before) == []


@linux
def test_a_command_that_was_forked_is_a_child_as_well() -> None:
    before = held()
    with Command([*FASTFLIGHT, "eval", "-", "--device", "sim:"], stdin=subprocess.PIPE) as command:
        assert any(line.startswith(f"child process {command.pid}") for line in leaked(before, within=0))
    assert leaked(before) == []


@linux
def test_a_child_that_was_there_before_is_none_though_it_was_not_seen() -> None:
    """The system lists children by the thread that started them: one whose thread just ends is in no list."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = held().ticks
        while (before := replace(held(), children=frozenset())).ticks == born:
            pass
        assert leaked(before, within=0) == []
        child.communicate(b"\n")
