"""Files of a board on standard output, and standard input as a file: `cat`, `head`, `get` in a pipe, `put -`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.servers import serving

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
    with serving({"demo": f"sim:?files={board}&telemetry=0"}) as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")
        yield running.location


def test_cat_prints_the_bytes_of_all_files(run: Run) -> None:
    result = run("cat", "demo:/a.csv", ":/a.bin", "/notes.txt")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == CSV + CONTENT + b"one\ntwo\r\nthree\nfour"
    assert run("cat", "demo:/**/*.csv").stdout_bytes == CSV + b"n\n1\n"


def test_cat_ends_at_the_first_file_that_fails(run: Run) -> None:
    result = run("cat", "demo:/notes.txt", "demo:/missing", "demo:/a.csv")
    assert (result.exit_code, result.stdout_bytes) == (1, b"one\ntwo\r\nthree\nfour")
    assert "/missing" in result.stderr


def test_get_in_a_pipe_gives_the_bytes(run: Run) -> None:
    for arguments in (
        ("demo:/a.csv",),
        ("demo:/a.csv", "-o", "-"),
        ("demo:/a.csv", "-"),
        ("demo:/a.csv", "--as", "csv"),
    ):
        assert run("get", *arguments).stdout_bytes == CSV
    assert run("get", "demo:/a.bin").stdout_bytes == CONTENT
    assert run("get", "demo:/a.csv", "--format", "raw").stdout_bytes == CSV


def test_get_in_a_pipe_converts_where_it_is_asked_to(run: Run) -> None:
    lines = run("get", "demo:/a.csv", "--as", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines][0] == {"time": 1, "celsius": 20.5}
    assert run("get", "demo:/a.csv", "--columns", "celsius").stdout == "celsius\n20.5\n21.0\n19.5\n"
    assert run("get", "demo:/a.csv", "--head", "1", "--as", "csv").stdout == "time,celsius\n1,20.5\n"
    table = pa.ipc.open_stream(run("get", "demo:/a.csv", "-o", "-", "--as", "arrow").stdout_bytes).read_all()
    assert table.to_pydict() == {"time": [1, 2, 3], "celsius": [20.5, 21.0, 19.5]}
    packed = ("--format", "packed", "--struct", "<BBBB", "--columns", "a,b,c,d")
    assert run("get", "demo:/a.bin", *packed).stdout.splitlines()[:2] == ["a,b,c,d", "0,1,2,3"]


def test_head_shows_the_first_rows(run: Run) -> None:
    lines = run("head", "demo:/a.csv", "-n", "2").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["time", "celsius"],
        ["int64", "double"],
        ["1", "20.5"],
        ["2", "21.0"],
        ["the", "first", "2", "rows,", "2", "columns"],
    ]
    assert run("head", "demo:/a.csv").stdout.splitlines()[-1] == "3 rows, 2 columns"
    assert run("get", "demo:/a.csv", "--head", "2").stdout.splitlines() == lines
    assert json.loads(run("get", "demo:/a.csv", "--head", "2", "--json").stdout)["rows"] == 2


def test_head_of_a_file_without_rows_prints_lines_or_bytes(run: Run) -> None:
    assert run("head", "demo:/notes.txt", "-n", "2").stdout_bytes == b"one\ntwo\r\n"
    assert run("head", "demo:/notes.txt").stdout_bytes == b"one\ntwo\r\nthree\nfour"
    assert run("head", "demo:/lines.txt", "-n", "2500").stdout_bytes == b"".join(LINES[:2500])
    assert run("head", "demo:/lines.txt", "-n", "9000").stdout_bytes == b"".join(LINES)
    assert run("head", "demo:/a.bin", "-c", "300").stdout_bytes == CONTENT[:300]
    assert run("head", "demo:/a.csv", "-c", "0").stdout_bytes == b""


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


def test_the_first_rows_can_be_saved(run: Run, tmp_path: Path) -> None:
    result = run("get", "demo:/a.csv", str(tmp_path / "b.csv"), "--head", "2")
    assert (result.exit_code, result.stdout.endswith("2 rows\n")) == (0, True)
    assert (tmp_path / "b.csv").read_text() == "time,celsius\n1,20.5\n2,21.0\n"


def test_standard_input_becomes_a_file(run: Run, board: Path) -> None:
    text = "print('hé')\n" * 2000
    result = run("put", "-", "demo:/from.py", input=text)
    assert (result.exit_code, result.stdout) == (0, "demo:/from.py: 26.0 kB written\n")
    assert (board / "from.py").read_bytes() == text.encode()
    assert run("put", "-", ":/from.py", "--skip-unchanged", input=text).stdout == "demo:/from.py: unchanged\n"
    told = json.loads(run("put", "-", "demo:/from.csv", "--json", input="a\n1\n").stdout)
    assert (told["path"], told["sha256"]) == ("/from.csv", hashlib.sha256(b"a\n1\n").hexdigest())
    assert run("rm", "demo:/from*").exit_code == 0


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[str]:
    """The address of a server whose board has a slow line and two files of some 300 kB, 25 seconds each."""
    (tmp_path / "board").mkdir()
    rows = b"".join(b"%d,%s\n" % (row, hashlib.sha256(b"%d" % row).hexdigest().encode()) for row in range(4000))
    (tmp_path / "board" / "rows.csv").write_bytes(b"n,digest\n" + rows)
    (tmp_path / "board" / "lines.txt").write_bytes(rows)
    url = f"sim:?files={tmp_path / 'board'}&telemetry=0&baud=115200"
    with serving({"demo": url}) as running:
        yield running.location


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
        client.info("demo")
        before = received(client)
        result = CliRunner().invoke(app, [*arguments, "--server", slow], env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.stderr
        client.stat("demo", "/rows.csv")  # waits until the board is free again
        assert received(client) - before < most


@pytest.mark.parametrize(
    "arguments", [("cat", "demo:/a.bin"), ("get", "demo:/a.bin"), ("get", "demo:/a.csv", "--as", "jsonl")]
)
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
