"""`fastflight tail` in front of the simulated board, which prints telemetry."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from fastflight.app.compose import open_server
from fastflight.client import FastFlightClient
from tests.support.commands import FASTFLIGHT, Command
from tests.support.servers import config

from ..gateway.speaking_device import Speaker
from .conftest import Run, demo_server


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    """A board that prints: other tests take its program away."""
    yield from demo_server()


ENDED = re.compile(r"limit reached: 3 rows in \d+\.\d s\n$")


def test_lines_with_the_time_they_came(run: Run) -> None:
    result = run("tail", "demo", "-n", "3")
    assert result.exit_code == 0
    # A board that was asked for something before may say so first.
    assert [bool(re.match(r"\d\d:\d\d:\d\d\.\d{3}  ", line)) for line in result.stdout.splitlines()] == [True] * 3
    assert ENDED.search(result.stderr)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_columns_for_a_script(run: Run, mode: str) -> None:
    arguments = ["--format", "jsonl", "--schema", "ms=int64,temperature=double", "--mode", mode, "-n", "3"]
    rows = [json.loads(line) for line in run("tail", "demo", "--json", *arguments).stdout.splitlines()]
    assert [sorted(row) for row in rows] == [["ms", "seq", "temperature", "time"]] * 3
    shown = run("tail", "demo", "--csv", *arguments, "--columns", "ms,temperature").stdout.splitlines()
    assert shown[0] == "ms,temperature"
    assert [len(line.split(",")) for line in shown] == [2] * 4


def test_the_bytes_as_they_are(run: Run) -> None:
    assert b'{"ms"' in run("tail", "demo", "--raw", "-n", "9").stdout_bytes


def test_what_requests_say_is_shown_on_request(run: Run, opened: str) -> None:
    # The traffic of requests is kept only while a session asks for it.
    with FastFlightClient(opened) as client, client.session("demo", format="bytes", requests=True) as session:
        assert next(iter(session)).num_rows
        assert run("ls", "demo").exit_code == 0
        shown = run("tail", "demo", "--requests", "--since", "60", "--seconds", "1").stdout
    assert re.search(r"  request tx  \\x01\n.*  request rx  .*raw REPL", shown, re.DOTALL)
    assert re.search(r"  rx  \{", shown)
    assert "request" not in run("tail", "demo", "--since", "60", "--seconds", "1").stdout
    refused = run("tail", "demo", "--requests", "--format", "jsonl", "--schema", "ms=int64")
    assert (refused.exit_code, "ask for bytes" in refused.stderr) == (1, True)


def following(location: str, *arguments: str) -> Command:
    """`tail` as a process."""
    command = [*FASTFLIGHT, "tail", *arguments, "--server", location]
    return Command(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ctrl_c_ends_it_with_a_summary(location: str) -> None:
    with following(location, "demo") as child:
        while b'"ms"' not in child.stdout.readline():
            pass
        child.send_signal(signal.SIGINT)
        _, said = child.communicate()
    assert child.returncode == 130
    assert re.search(rb"interrupted: [\d,]+ rows? in \d+\.\d s", said)


@pytest.mark.parametrize(
    ("leaves", "says"), [("server", b"error: the server shuts down: "), ("device", b"error: the device is gone")]
)
def test_an_end_that_nobody_asked_for_is_an_error(leaves: str, says: bytes) -> None:
    with Speaker(b'{"ms": 1}\n') as device, contextlib.ExitStack() as running:
        settings = config({"tank": device.url}, drain_seconds=0.5)
        location = running.enter_context(open_server(settings)).location
        with following(location, "tank") as child:
            assert child.stdout.readline()
            if leaves == "server":
                running.close()
            else:
                device.cut()
            assert says in child.stderr.read()
            assert child.wait() == 3


@pytest.mark.parametrize("form", [[], ["--raw"]], ids=["text", "raw"])
def test_a_reader_that_has_enough(location: str, form: list[str]) -> None:
    """`tail demo | head -1`: nothing is wrong, and nothing is said."""
    with following(location, "demo", *form) as child:
        assert child.stdout.readline()
        child.stdout.close()
        assert (child.stderr.read(), child.wait()) == (b"", 1)


def test_lines_that_do_not_fit_are_told_of_while_it_follows(location: str) -> None:
    """The board prints JSON: as CSV, no line has the columns that are asked for."""
    with following(location, "demo", "--format", "csv", "--schema", "ms=int64") as child:
        told = child.stderr.readline().decode()
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert re.fullmatch(r"warning: \d+ rows? rejected, none fits: the row has 4 cells, .*\n", told)
