"""`get` and `put` of files and folders as they are: what lands where, what is left out, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `app` with three files, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app" / "lib").mkdir(parents=True)
    (tmp_path / "app" / "main.py").write_text("import lib.a")
    (tmp_path / "app" / "lib" / "a.py").write_text("print(1)")
    (tmp_path / "app" / "lib" / "__init__.py").write_text("")
    return tmp_path / "app"


def there(run: Run, folder: str) -> list[str]:
    """The files below a folder of the board."""
    listing = json.loads(run("ls", f"demo:{folder}", "-r", "--json").stdout)
    return [entry["path"] for entry in listing if entry["kind"] == "file"]


def clear(run: Run, folder: str) -> None:
    entries = json.loads(run("ls", f"demo:{folder}", "-r", "--json").stdout)
    for entry in reversed(entries):
        assert run("rm", f"demo:{entry['path']}").exit_code == 0
    run("rm", f"demo:{folder}")


@pytest.mark.parametrize(
    ("source", "to", "lands"),
    [
        ("app", "demo:/t", "/t"),
        ("app/", "demo:/t", "/t"),
        ("app", "demo:/t/", "/t/app"),
        ("app/", "demo:/t/", "/t"),
        ("./app", "demo:t/deep/er/", "/t/deep/er/app"),
    ],
)
def test_where_a_folder_lands_on_a_device(run: Run, app: Path, source: str, to: str, lands: str) -> None:
    run("mkdir", "demo:/t")
    result = run("put", "-r", source, to)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = lands + "/" if source.endswith("/") and to.endswith("/") else lands
    assert result.stdout == f"demo:{shown}: 3 files, 20 B written\n"
    assert there(run, "/t") == [f"{lands}/lib/__init__.py", f"{lands}/lib/a.py", f"{lands}/main.py"]
    assert run("put", "-r", source, to).stdout == f"demo:{shown}: 3 unchanged\n"
    assert run("put", "-r", source, to, "--no-skip-unchanged").stdout == result.stdout
    clear(run, "/t")


@pytest.mark.parametrize(
    ("arguments", "lands"),
    [
        (("demo:/t", "back"), "back"),
        (("demo:/t", "-o", "back"), "back"),
        (("demo:/t", "back/"), "back/t"),
        (("demo:/t/", "back/"), "back"),
        (("demo:/t",), "t"),
        (("demo:/t/lib", "."), "."),
    ],
)
def test_where_a_folder_lands_here(run: Run, app: Path, tmp_path: Path, arguments: tuple[str, ...], lands: str) -> None:
    assert run("put", "-r", "app", "demo:/t").exit_code == 0
    result = run("get", "-r", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    count, size = (2, 8) if "lib" in arguments[0] else (3, 20)
    assert result.stdout == f"{lands}: {count} files, {size} B read\n"
    assert (tmp_path / lands / "a.py").exists() if count == 2 else (tmp_path / lands / "lib" / "a.py").exists()
    clear(run, "/t")


def test_what_was_left_out_is_named(run: Run, app: Path) -> None:
    (app / "link").symlink_to("main.py")
    result = run("put", "-r", "app", "demo:/t")
    assert (result.exit_code, result.stdout) == (0, "demo:/t: 3 files, 20 B written\n")
    assert result.stderr == "not copied, neither files nor folders: link\n"
    clear(run, "/t")


def test_a_script_reads_what_was_copied(run: Run, app: Path) -> None:
    told = json.loads(run("put", "-r", "app", "demo:/t", "--json").stdout)
    files = ["lib/__init__.py", "lib/a.py", "main.py"]
    none = {"unchanged": [], "skipped": [], "ignored": [], "removed": []}
    assert told == {"device": "demo", "path": "/t", "files": files, "bytes": 20, **none}
    (app / "main.py").write_text("changed")
    told = json.loads(run("get", "-r", "demo:/t", "app", "--json").stdout)
    assert (told["files"], told["unchanged"], told["output"]) == (["main.py"], files[:2], "app")
    assert (app / "main.py").read_text() == "import lib.a"
    clear(run, "/t")


def test_a_file_that_is_the_same_is_not_moved(run: Run, app: Path) -> None:
    put = ("put", "app/main.py", "demo:/t.py", "--skip-unchanged")
    assert run(*put).stdout == "demo:/t.py: 12 B written\n"
    assert run(*put).stdout == "demo:/t.py: unchanged\n"
    get = ("get", "demo:/t.py", "app/main.py", "--skip-unchanged")
    assert run(*get).stdout == "app/main.py: unchanged\n"
    (app / "main.py").write_text("IMPORT lib.a")
    assert run(*get).stdout == "app/main.py: 12 B\n"
    assert run("rm", "demo:/t.py").exit_code == 0


def test_a_copy_goes_on_from_its_part(run: Run, app: Path, tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    (tmp_path / "big.bin").write_bytes(content)
    assert run("put", "big.bin", "demo:/big.bin").exit_code == 0
    (tmp_path / "back.bin.part").write_bytes(content[:10_000])
    result = run("get", "demo:/big.bin", "-o", "back.bin")
    assert result.stderr == "demo:/big.bin: resuming at 10.0 kB of 25.6 kB\n"
    assert result.stdout == "back.bin: 25.6 kB, 10.0 kB of it earlier\n"
    assert (tmp_path / "back.bin").read_bytes() == content
    (tmp_path / "back.bin.part").write_bytes(content[:10_000])
    told = json.loads(run("get", "demo:/big.bin", "-o", "back.bin", "--json").stdout)
    assert (told["resumed_at"], told["bytes"], told["unchanged"]) == (10_000, 25_600, False)
    (tmp_path / "back.bin.part").write_bytes(content[:10_000])
    assert run("get", "demo:/big.bin", "-o", "back.bin", "--no-resume").stderr == ""
    assert run("rm", "demo:/big.bin").exit_code == 0


@pytest.mark.parametrize("method", ["binary", "base64", "literal"])
@pytest.mark.parametrize("deflate", ["--deflate", "--no-deflate"])
def test_bytes_cross_the_line_as_they_are_told_to(
    run: Run, app: Path, tmp_path: Path, method: str, deflate: str
) -> None:
    assert run("put", "app/main.py", "demo:/t.py", "--transfer", method, deflate).exit_code == 0
    assert run("get", "demo:/t.py", "back.py", "--transfer", method).exit_code == 0
    assert (tmp_path / "back.py").read_bytes() == (app / "main.py").read_bytes()
    assert run("rm", "demo:/t.py").exit_code == 0


def test_a_project_is_copied_without_what_no_board_runs(run: Run, app: Path) -> None:
    for path in (".git/config", "lib/__pycache__/a.pyc", "b.pyc", "notes.log", "docs/a.md", ".DS_Store"):
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        (app / path).write_text("x")
    (app / ".fastflightignore").write_text("# what only this computer needs\n\n*.log\ndocs/\n")
    result = run("put", "-r", "app", "demo:/t")
    # .git, .DS_Store, .fastflightignore, b.pyc, docs, lib/__pycache__ and notes.log
    assert result.stdout == "demo:/t: 3 files, 20 B written; 7 left out\n"
    assert there(run, "/t") == ["/t/lib/__init__.py", "/t/lib/a.py", "/t/main.py"]
    told = json.loads(run("put", "-r", "app", "demo:/t", "--json").stdout)
    assert {"docs/", "lib/__pycache__/", ".git/"} <= set(told["ignored"])
    result = run("cp", "-r", "app/", "demo:/t/all", "--all")
    assert (result.exit_code, "left out" in result.stdout) == (0, False)
    assert "/t/all/.git/config" in there(run, "/t/all")
    assert "/t/all/notes.log" in there(run, "/t/all")
    assert run("rm", "-r", "demo:/t", "--yes").exit_code == 0


@pytest.mark.parametrize(("content", "says"), [(b"*.pyc\n!keep.pyc\n", "line 2"), (b"\xff", "not UTF-8")])
def test_a_wrong_ignore_file_is_named(run: Run, app: Path, content: bytes, says: str) -> None:
    (app / ".fastflightignore").write_bytes(content)
    for copy in ("put", "cp"):
        result = run(copy, "-r", "app", "demo:/t")
        assert (result.exit_code, ".fastflightignore" in result.stderr) == (2, True)
        assert says in result.stderr
    assert run("ls", "demo:/t").exit_code == 1
