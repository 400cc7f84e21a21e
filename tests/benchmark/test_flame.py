"""A flame graph of a process that is looked at, and what is said where there can be none."""

from __future__ import annotations

import io
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fastflight_benchmark import flame
from fastflight_benchmark.options import Options
from fastflight_benchmark.selection import Selection
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for py-spy is a shell script")
DRAWN = '<svg><text id="title" x="5">py-spy record --pid 1</text><title>do_get (flight.py:7)</title></svg>'


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(flame.shutil, "which", lambda *_, **__: str(program))


def test_the_graph_is_drawn_when_the_work_is_done_and_says_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last argument is the file; SIGINT ends the recording.
    draws = f"for last; do :; done\ntrap 'echo \"$drawn\" > \"$last\"; exit 0' INT\ndrawn='{DRAWN}'\n"
    stand_in(tmp_path, draws + 'echo > "$0.ready"\nwhile :; do read -t 1 _ < /dev/null; done', monkeypatch)
    said: list[str] = []
    path = flame.graph_of(tmp_path / "result.csv", 2)
    with flame.profiled(1, path, said.append):
        until((tmp_path / "py-spy.ready").exists)

    assert path.name == "result_profile_2.svg"
    assert said == [f"flame graph of the server: {path}"]
    assert f'<text id="title" x="5">{flame.TITLE_TEXT}</text>' in path.read_text()
    assert "do_get (flight.py:7)" in path.read_text()


@pytest.mark.parametrize(
    ("pid", "script", "says"),
    [
        (
            1,
            "echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; echo > $0.ready; exit 1",
            "Permission",
        ),
        (None, "", "its process is not known"),
    ],
)
def test_where_there_can_be_none_the_reason_is_said_and_the_work_goes_on(
    pid: int | None, script: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, script, monkeypatch)
    said: list[str] = []
    with flame.profiled(pid, tmp_path / "graph.svg", said.append):
        until(lambda: pid is None or (tmp_path / "py-spy.ready").exists())

    (line,) = said
    assert line.startswith("no profile: ")
    assert says in line


def test_without_py_spy_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flame.shutil, "which", lambda *_, **__: None)
    said: list[str] = []
    with flame.profiled(1, tmp_path / "graph.svg", said.append):
        pass

    assert said == ["no profile: py-spy is not installed; it is in the extra `benchmark`"]


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path) -> None:
    screen = io.StringIO()
    given = Options("unused", True, 1, tmp_path / "result.csv", Console(file=screen), Selection())
    with given.profiled(None, 1):
        pass

    assert screen.getvalue() == ""
