"""`edit`, with small programs in place of an editor."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.servers import config

Edit = Callable[..., Result]

# Editors: each is a program that gets the path of the file.
APPEND = "open(sys.argv[1], 'ab').write(b'more\\n')"
LEAVE = "pass"
FAIL = "sys.exit(3)"


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """The folder of the board's files."""
    folder = tmp_path / "board"
    folder.mkdir()
    return folder


@pytest.fixture
def location(board: Path) -> Iterator[str]:
    settings = config({"demo": f"sim:?files={board}&telemetry=0"})
    with open_server(settings) as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")
        yield running.location


@pytest.fixture
def edit(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Run `edit` with an editor that runs `code`."""
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    monkeypatch.setenv("FASTFLIGHT_SERVER", location)
    monkeypatch.delenv("VISUAL", raising=False)

    def invoke(path: str, code: str) -> Result:
        monkeypatch.setenv("EDITOR", shlex.join([sys.executable, "-c", f"import sys\n{code}"]))
        result = CliRunner().invoke(app, ["edit", path])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def copies(tmp_path: Path) -> list[Path]:
    """The files that are left on this computer."""
    return [path for path in (tmp_path / "copies").rglob("*") if path.is_file()]


def test_a_changed_file_is_written_back(edit: Edit, board: Path, tmp_path: Path) -> None:
    (board / "main.py").write_bytes(b"print(1)\r\n")
    result = edit("demo:/main.py", APPEND)
    assert (result.exit_code, result.stdout) == (0, "demo:/main.py: 15 B written\n")
    assert (board / "main.py").read_bytes() == b"print(1)\r\nmore\n"
    assert copies(tmp_path) == []


def test_the_copy_has_the_name_of_the_file(edit: Edit, board: Path) -> None:
    """So that the editor knows its language."""
    (board / "main.py").write_bytes(b"")
    edit("/main.py", "open(sys.argv[1], 'w').write(sys.argv[1])")
    assert Path((board / "main.py").read_text()).name == "main.py"


def test_an_unchanged_file_is_not_written(edit: Edit, board: Path, tmp_path: Path) -> None:
    (board / "a.txt").write_bytes(b"a")
    written = (board / "a.txt").stat().st_mtime_ns
    result = edit("demo:/a.txt", LEAVE)
    assert (result.exit_code, result.stderr) == (0, "demo:/a.txt: unchanged\n")
    assert (board / "a.txt").stat().st_mtime_ns == written
    assert copies(tmp_path) == []


def test_a_missing_file_is_created(edit: Edit, board: Path) -> None:
    assert edit("demo:/new.txt", APPEND).exit_code == 0
    assert (board / "new.txt").read_bytes() == b"more\n"


def test_a_missing_file_that_stays_empty_is_not_created(edit: Edit, board: Path, tmp_path: Path) -> None:
    assert edit("demo:/new.txt", LEAVE).stderr == "demo:/new.txt: not created\n"
    assert not (board / "new.txt").exists()
    assert copies(tmp_path) == []


@pytest.mark.parametrize("before", [b"old\n", None], ids=["changed", "created"])
def test_a_file_that_changed_on_the_board_is_not_overwritten(
    edit: Edit, board: Path, tmp_path: Path, before: bytes | None
) -> None:
    if before is not None:
        (board / "a.txt").write_bytes(before)
    result = edit("demo:/a.txt", f"{APPEND}\nopen({str(board / 'a.txt')!r}, 'wb').write(b'theirs')")
    assert result.exit_code == 1
    assert (board / "a.txt").read_bytes() == b"theirs"
    (kept,) = copies(tmp_path)
    assert kept.read_bytes() == (before or b"") + b"more\n"
    assert f"your changes are kept in {kept}\n" in result.stderr


def test_changes_that_cannot_be_written_are_kept(edit: Edit, tmp_path: Path) -> None:
    result = edit("demo:/no/such/folder/a.txt", APPEND)
    assert result.exit_code == 1
    (kept,) = copies(tmp_path)
    assert (kept.read_bytes(), str(kept) in result.stderr) == (b"more\n", True)


def test_changes_are_kept_when_the_server_is_gone(
    board: Path, tmp_path: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    settings = config({"demo": f"sim:?files={board}"}, drain_seconds=0.0)
    with open_server(settings) as running:
        monkeypatch.setenv("FASTFLIGHT_SERVER", running.location)
        monkeypatch.setattr("fastflight.cli.edit._open_editor", lambda path: (path.write_bytes(b"b"), running.close()))
        result = edit("demo:/a.txt", LEAVE)
    assert result.exit_code == 3
    (kept,) = copies(tmp_path)
    assert (kept.read_bytes(), str(kept) in result.stderr) == (b"b", True)


@pytest.mark.parametrize("code", [FAIL, f"{APPEND}\n{FAIL}"], ids=["unchanged", "changed"])
def test_nothing_is_written_if_the_editor_fails(edit: Edit, board: Path, tmp_path: Path, code: str) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    result = edit("demo:/a.txt", code)
    assert (result.exit_code, "exit code 3" in result.stderr) == (1, True)
    assert (board / "a.txt").read_bytes() == b"a\n"
    assert len(copies(tmp_path)) == (code != FAIL)


def test_an_editor_that_does_not_exist_is_named(edit: Edit, board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    monkeypatch.setenv("VISUAL", "/no/such/editor --wait")
    result = edit("demo:/a.txt", LEAVE)
    assert (result.exit_code, "/no/such/editor --wait" in result.stderr) == (1, True)


@pytest.mark.parametrize("path", ["demo:/", "demo:/folder/", "demo:/folder", "demo:/.."])
def test_a_folder_is_refused(edit: Edit, board: Path, path: str) -> None:
    (board / "folder").mkdir()
    assert edit(path, APPEND).exit_code == 1


def test_the_device_is_free_while_the_file_is_edited(edit: Edit, location: str, board: Path, tmp_path: Path) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    output = str(tmp_path / "ls")
    listing = "[sys.executable, '-m', 'fastflight', 'ls', '--json']"
    code = f"import subprocess\nsubprocess.run({listing}, check=True, stdout=open({output!r}, 'w'))"
    assert edit("demo:/a.txt", code).exit_code == 0
    assert "/a.txt" in [entry["path"] for entry in json.loads((tmp_path / "ls").read_text())]


def test_ctrl_c_is_for_the_editor(edit: Edit, board: Path) -> None:
    """A terminal sends it to the editor and to the command that waits for it."""
    result = edit("demo:/a.txt", f"import os, signal\nos.kill(os.getppid(), signal.SIGINT)\n{APPEND}")
    assert result.exit_code == 0
    assert (board / "a.txt").read_bytes() == b"more\n"
