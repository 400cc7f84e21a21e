"""`cat`, `head`, `cp` and `rm` on real MicroPython: a micro:bit's firmware, and the VM in WebAssembly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from fastflight.app.compose import open_server
from fastflight.app.settings import ServeSettings
from fastflight.client import FastFlightClient

Run = Callable[..., Result]

pytestmark = pytest.mark.firmware

CSV = b"time,celsius\n" + b"".join(b"%d,%d.5\n" % (row, row % 30) for row in range(300))


@pytest.fixture(params=["microbit", "webassembly_without_raw_paste"])
def opened(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server with each of the targets."""
    url = request.getfixturevalue(request.param)
    with open_server(ServeSettings("grpc://127.0.0.1:0", {"demo": url})) as running:
        yield running.location


@pytest.fixture
def has_folders(opened: str) -> bool:
    with FastFlightClient(opened) as client:
        return "os.mkdir" in client.info("demo")["features"]


def test_files_there_and_back(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_folders: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "b.txt").write_bytes(b"one\ntwo\nthree\n")
    result = run("cp", "a.csv", "b.txt", ":")
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("cat", ":/a.csv", "demo:/b.txt").stdout_bytes == CSV + b"one\ntwo\nthree\n"
    assert run("get", "/b.txt").stdout_bytes == b"one\ntwo\nthree\n"
    assert run("head", ":/b.txt", "-n", "2").stdout == "one\ntwo\n"
    assert run("head", ":/a.csv", "-c", "20").stdout_bytes == CSV[:20]
    assert run("head", ":/a.csv", "-n", "2").stdout.splitlines()[-1] == "the first 2 rows, 2 columns"
    listed = json.loads(run("ls", "demo:/?.*", "--json").stdout)
    assert [entry["path"] for entry in listed] == ["/a.csv", "/b.txt"]

    (tmp_path / "back").mkdir()
    assert run("cp", "demo:/?.*", "back").exit_code == 0
    assert (tmp_path / "back" / "a.csv").read_bytes() == CSV
    assert run("cp", "demo:/b.txt", "demo:/c.txt").exit_code == 0
    assert run("put", "-", "demo:/d.txt", input="four\n").exit_code == 0
    assert run("cat", "/[cd].txt").stdout == "one\ntwo\nthree\nfour\n"

    assert run("rm", "demo:/a.csv", "demo:/[bc].txt").exit_code == 0
    result = run("rm", "-r", "--yes", "demo:/d.txt")
    assert (result.exit_code, result.stdout) == (0, "demo:/d.txt: 1 file, 5 B removed\n")
    assert run("ls", "demo:/?.*").exit_code == 1

    made = run("mkdir", "-p", "demo:/new/deep")
    assert made.exit_code == (0 if has_folders else 1)
    if has_folders:
        (tmp_path / "back" / "more").mkdir()
        (tmp_path / "back" / "more" / "e.txt").write_bytes(b"five")
        assert run("cp", "-r", "back/", "demo:/new/deep").exit_code == 0
        assert run("cat", "demo:/new/**/e.txt").stdout == "five"
        result = run("rm", "-r", "--yes", "demo:/new")
        assert result.stdout == f"demo:/new: 3 files, {len(CSV) + 18} B, 3 folders removed\n"
