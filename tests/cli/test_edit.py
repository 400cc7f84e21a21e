"""`edit`, with small programs in place of an editor."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from tests.support.servers import config, ready_server

Edit = Callable[..., Result]

# Editors: each is a program that gets the path of the file.
APPEND = "open(sys.argv[1], 'ab').write(b'more\\n')"
LEAVE = "pass"
FAIL = "sys.exit(3)"
INTERRUPT = "import os, signal\nos.kill(os.getppid(), signal.SIGINT)"
# Somebody else changes the file on the board meanwhile.
THEIRS = f"{APPEND}\nopen({{file!r}}, 'wb').write(b'theirs')"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("board")


@pytest.fixture(scope="module")
def location(files: Path) -> Iterator[str]:
    with ready_server({"demo": f"sim:?files={files}&telemetry=0"}) as location:
        yield location


@pytest.fixture
def board(files: Path) -> Path:
    """The folder of the board's files, without those of the test before."""
    for path in files.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    return files


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


@dataclass(frozen=True)
class Case:
    """A path, what is there before, the editor, and what comes of it: `kept` is a copy that stays here."""

    path: str
    before: bytes | None
    editor: str
    exit_code: int
    says: str
    after: bytes | None
    kept: bytes | None = None


CASES = {
    "changed": Case("demo:/a.py", b"a\r\n", APPEND, 0, "demo:/a.py: 8 B written\n", b"a\r\nmore\n"),
    "unchanged": Case("demo:/a.txt", b"a", LEAVE, 0, "demo:/a.txt: unchanged\n", b"a"),
    "created": Case("demo:/new.txt", None, APPEND, 0, "written", b"more\n"),
    "left empty": Case("demo:/new.txt", None, LEAVE, 0, "demo:/new.txt: not created\n", None),
    "changed on the board": Case("demo:/a.txt", b"old\n", THEIRS, 1, "error", b"theirs", b"old\nmore\n"),
    "created on the board": Case("demo:/a.txt", None, THEIRS, 1, "error", b"theirs", b"more\n"),
    "no such folder": Case("demo:/no/such/a.txt", None, APPEND, 1, "error", None, b"more\n"),
    "the editor fails": Case("demo:/a.txt", b"a\n", FAIL, 1, "exit code 3", b"a\n"),
    "it fails after a change": Case("demo:/a.txt", b"a\n", f"{APPEND}\n{FAIL}", 1, "exit code 3", b"a\n", b"a\nmore\n"),
    "a folder": Case("demo:/folder", None, APPEND, 1, "error", None),
    "a folder by its slash": Case("demo:/folder/", None, APPEND, 1, "error", None),
    "the root": Case("demo:/", None, APPEND, 1, "error", None),
    "above the root": Case("demo:/..", None, APPEND, 1, "error", None),
    # A terminal sends Ctrl-C to the editor, and to the command that waits for it.
    "interrupted": Case("demo:/a.txt", b"a\n", f"{INTERRUPT}\n{APPEND}", 0, "written", b"a\nmore\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_an_edit(edit: Edit, board: Path, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    file = board / case.path.partition(":/")[2]
    (board / "folder").mkdir()
    if case.before is not None:
        file.write_bytes(case.before)
        os.utime(file, ns=(0, 0))
    result = edit(case.path, case.editor.format(file=str(file)))
    assert (result.exit_code, case.says in result.output) == (case.exit_code, True), result.output
    assert (file.read_bytes() if file.is_file() else None) == case.after
    assert case.before is None or (file.stat().st_mtime_ns == 0) == (case.after == case.before)
    assert [path.read_bytes() for path in copies(tmp_path)] == ([] if case.kept is None else [case.kept])
    assert all(f"your changes are kept in {path}" in result.stderr for path in copies(tmp_path))


def test_the_copy_has_the_name_of_the_file(edit: Edit, board: Path) -> None:
    """So that the editor knows its language."""
    (board / "main.py").write_bytes(b"")
    edit("/main.py", "open(sys.argv[1], 'w').write(sys.argv[1])")
    assert Path((board / "main.py").read_text()).name == "main.py"


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


def test_an_editor_that_does_not_exist_is_named(edit: Edit, board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    monkeypatch.setenv("VISUAL", "/no/such/editor --wait")
    result = edit("demo:/a.txt", LEAVE)
    assert (result.exit_code, "/no/such/editor --wait" in result.stderr) == (1, True)


def test_the_device_is_free_while_the_file_is_edited(
    edit: Edit, location: str, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (board / "a.txt").write_bytes(b"a\n")
    seen: list[str] = []
    with FastFlightClient(location) as client:
        monkeypatch.setattr(
            "fastflight.cli.edit._open_editor", lambda _: seen.extend(entry.path for entry in client.ls("demo"))
        )
        assert edit("demo:/a.txt", LEAVE).exit_code == 0
    assert seen == ["/a.txt"]
