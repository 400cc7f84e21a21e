"""Files of a board on standard output, and standard input as a file: `cat`, `head`, `get` in a pipe, `put -`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.servers import ready_server

Run = Callable[..., Result]

SECONDS = 60.0
CONTENT = bytes(range(256)) * 40
LINES = [b"line %d\n" % number for number in range(3000)]
CSV = b"time,celsius\n1,20.5\n2,21.0\n3,19.5\n"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the board."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "a.csv").write_bytes(CSV)
    (folder / "a.bin").write_bytes(CONTENT)
    (folder / "notes.txt").write_bytes(b"one\ntwo\r\nthree\nfour")
    (folder / "lines.txt").write_bytes(b"".join(LINES))
    (folder / "data").mkdir()
    (folder / "data" / "b.csv").write_bytes(b"n\n1\n")
    return folder


@pytest.fixture(scope="module")
def location(board: Path) -> Iterator[str]:
    with ready_server({"demo": f"sim:?files={board}&telemetry=0"}) as location:
        yield location


def test_head_of_a_file_that_is_not_text_shows_its_first_bytes(run: Run) -> None:
    lines = run("head", "demo:/a.bin").stdout.splitlines()
    assert [bytes.fromhex(line[10:57]) for line in lines] == [CONTENT[n : n + 16] for n in range(0, 160, 16)]
    assert lines[1].startswith("00000010  ") and lines[1][59:].isascii()
    assert run("head", "demo:/a.bin", "-n", "1").stdout.splitlines() == lines[:1]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"a\0b\x1b", "00000000  61 00 62 1b" + 36 * " " + "  a.b.\n"),
        (b"\xff", "00000000  ff" + 45 * " " + "  .\n"),
        (b"", ""),
        ("é".encode() * 4, "é" * 4),
        (b"x" + "é".encode() * 4000, "x" + "é" * 4000),  # a character is cut by the part that is read first
        (b"\x1b[1mtext\n", "\x1b[1mtext\n"),
    ],
    ids=["nul", "not utf-8", "empty", "text", "long", "escapes"],
)
def test_head_tells_text_from_other_bytes(run: Run, board: Path, content: bytes, shown: str) -> None:
    (board / "head.x").write_bytes(content)
    assert run("head", "demo:/head.x").stdout_bytes == shown.encode()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose board has a slow line and two files of some 300 kB, 25 seconds each."""
    folder = tmp_path_factory.mktemp("slow")
    rows = b"".join(b"%d,%s\n" % (row, hashlib.sha256(b"%d" % row).hexdigest().encode()) for row in range(4000))
    (folder / "rows.csv").write_bytes(b"n,digest\n" + rows)
    (folder / "lines.txt").write_bytes(rows)
    with ready_server({"demo": f"sim:?files={folder}&telemetry=0&baud=115200"}) as location:
        yield location


def received(client: FastFlightClient) -> int:
    """How many bytes the board has sent."""
    figures = client.stats()["figures"]["fastflight_device_bytes_total"]
    return sum(int(value) for labels, value in figures if labels["direction"] == "rx")


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        # The first 64 KiB of a file decide its types, and come before the first row. With a schema, no row waits.
        (("head", "demo:/rows.csv", "-n", "5"), 75_000),
        (("get", "demo:/rows.csv", "--head", "5", "--schema", "n=int64,digest=string"), 60_000),
        (("head", "demo:/lines.txt", "-n", "5"), 8_000),
        (("head", "demo:/rows.csv", "-c", "2000"), 8_000),
    ],
)
def test_the_board_does_not_send_the_rest(slow: str, arguments: tuple[str, ...], most: int) -> None:
    with FastFlightClient(slow) as client:
        before = received(client)
        result = CliRunner().invoke(app, [*arguments, "--server", slow], env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.stderr
        client.stat("demo", "/rows.csv")  # waits until the board is free again
        assert received(client) - before < most


@pytest.mark.parametrize("arguments", [("cat", "demo:/a.bin"), ("get", "demo:/a.csv", "--as", "jsonl")])
def test_a_reader_that_leaves_ends_the_command_quietly(opened: str, arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, "FASTFLIGHT_SERVER": opened}
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "fastflight", *arguments]
    try:
        done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, env=environment, timeout=SECONDS)
    finally:
        os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")
