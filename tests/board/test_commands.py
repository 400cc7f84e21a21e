"""`cat`, `head`, `cp`, `rm` and more, on every kind of board."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Board

CSV = b"time,celsius\n" + b"".join(b"%d,%d.5\n" % (row, row % 30) for row in range(300))


def test_files_there_and_back(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, top = board.run, f"board:{board.folder}"
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "b.txt").write_bytes(b"one\ntwo\nthree\n")
    result = run("cp", "a.csv", "b.txt", top)
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("cat", f":{board.folder}a.csv", f"{top}b.txt").stdout_bytes == CSV + b"one\ntwo\nthree\n"
    assert run("get", board.path("b.txt")).stdout_bytes == b"one\ntwo\nthree\n"
    assert run("head", f":{board.folder}b.txt", "-n", "2").stdout == "one\ntwo\n"
    assert run("head", f":{board.folder}a.csv", "-c", "20").stdout_bytes == CSV[:20]
    assert run("head", f":{board.folder}a.csv", "-n", "2").stdout.splitlines()[-1] == "the first 2 rows, 2 columns"
    listed = json.loads(run("ls", f"{top}?.*", "--json").stdout)
    assert [entry["path"] for entry in listed] == [board.path("a.csv"), board.path("b.txt")]

    (tmp_path / "back").mkdir()
    assert run("cp", f"{top}?.*", "back").exit_code == 0
    assert (tmp_path / "back" / "a.csv").read_bytes() == CSV
    assert run("cp", f"{top}b.txt", f"{top}c.txt").exit_code == 0
    assert run("put", "-", f"{top}d.txt", input="four\n").exit_code == 0
    assert run("cat", board.path("[cd].txt")).stdout == "one\ntwo\nthree\nfour\n"

    assert run("rm", f"{top}a.csv", f"{top}[bc].txt").exit_code == 0
    result = run("rm", "-r", "--yes", f"{top}d.txt")
    assert (result.exit_code, result.stdout) == (0, f"{top}d.txt: 1 file, 5 B removed\n")
    assert run("ls", f"{top}?.*").exit_code == 1

    made = run("mkdir", "-p", f"{top}new/deep")
    assert made.exit_code == int("folders" in board.lacks)
    if "folders" not in board.lacks:
        (tmp_path / "back" / "more").mkdir()
        (tmp_path / "back" / "more" / "e.txt").write_bytes(b"five")
        assert run("cp", "-r", "back/", f"{top}new/deep").exit_code == 0
        assert run("cat", f"{top}new/**/e.txt").stdout == "five"
        result = run("rm", "-r", "--yes", f"{top}new")
        assert result.stdout == f"{top}new: 3 files, {len(CSV) + 18} B, 3 folders removed\n"


def test_what_a_board_knows_of_itself(board: Board) -> None:
    (space,) = json.loads(board.run("df", "--json").stdout)[:1]
    assert space["path"] == "/" and (space["free"] is None) == ("folders" in board.lacks)
    assert json.loads(board.run("info", "--json").stdout)["platform"]
    clock = board.run("rtc")
    assert clock.exit_code == 0 or "has no clock" in clock.stderr
    assert board.run("soft-reset").exit_code == 0
