"""`cp` between this computer and two boards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from fastflight.client import FastFlightClient
from tests.support.folders import files_below
from tests.support.servers import serving

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the boards `demo` and `lab`."""
    return tmp_path_factory.mktemp("boards")


@pytest.fixture(scope="module")
def location(boards: Path) -> Iterator[str]:
    for name in ("demo", "lab"):
        (boards / name).mkdir()
    urls = {name: f"sim:?files={boards / name}&telemetry=0" for name in ("demo", "lab")}
    with serving(urls) as running:
        with FastFlightClient(running.location) as client:
            for name in urls:
                client.info(name)
        yield running.location


@pytest.fixture
def here(boards: Path, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where commands run, and empty boards but for the folder `data` of `demo`."""
    with FastFlightClient(location) as client:
        for name in ("demo", "lab"):
            for entry in reversed(client.ls(name, recursive=True)):
                client.remove(name, entry.path)
    (boards / "demo" / "data" / "deep").mkdir(parents=True)
    (boards / "demo" / "data" / "log-1.csv").write_text("a\n1\n")
    (boards / "demo" / "data" / "log-2.csv").write_text("a\n2\n")
    (boards / "demo" / "data" / "deep" / "x.bin").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.csv").write_text("b\n1\n")
    (tmp_path / "app" / "lib").mkdir(parents=True)
    (tmp_path / "app" / "main.py").write_text("import lib\n")
    (tmp_path / "app" / "lib" / "c.py").write_text("c = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        (("a.py", "demo:"), ["a.py"]),
        (("a.py", "demo:/"), ["a.py"]),
        (("a.py", "demo:/x.py"), ["x.py"]),
        (("b.csv", "demo:/b.jsonl"), ["b.jsonl"]),
        (("a.py", "b.csv", "demo:"), ["a.py", "b.csv"]),
        (("a.py", "b.csv", "demo:/data"), ["data/a.py", "data/b.csv"]),
        (("a.py", "demo:data/deep/"), ["data/deep/a.py"]),
        (("-r", "app", "demo:"), ["app/main.py", "app/lib/c.py"]),
        (("-r", "app/", "demo:"), ["main.py", "lib/c.py"]),
        (("-r", "app", "demo:/new"), ["new/main.py", "new/lib/c.py"]),
        (("-r", "app", "a.py", "demo:/data"), ["data/app/main.py", "data/app/lib/c.py", "data/a.py"]),
    ],
)
def test_where_local_files_land(
    run: Run, boards: Path, here: Path, arguments: tuple[str, ...], there: list[str]
) -> None:
    before = files_below(boards / "demo")
    result = run("cp", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    added = {path: content for path, content in files_below(boards / "demo").items() if path not in before}
    assert added.keys() == set(there)
    assert set(added.values()) <= set(files_below(here).values())


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        (("demo:/data/log-1.csv", "."), ["log-1.csv"]),
        (("demo:/data/log-1.csv", "new.txt"), ["new.txt"]),
        (("demo:/data/log-1.csv", "new.jsonl"), ["new.jsonl"]),
        (("demo:/data/*.csv", "app"), ["app/log-1.csv", "app/log-2.csv"]),
        (
            ("demo:/**/*.bin", "demo:/data/log-?.csv", "app/lib"),
            ["app/lib/x.bin", "app/lib/log-1.csv", "app/lib/log-2.csv"],
        ),
        (("-r", "demo:/data", "."), ["data/log-1.csv", "data/log-2.csv", "data/deep/x.bin"]),
        (("-r", "demo:/data/", "new"), ["new/log-1.csv", "new/log-2.csv", "new/deep/x.bin"]),
        (("-r", "demo:/data/*", "app"), ["app/log-1.csv", "app/log-2.csv", "app/deep/x.bin"]),
    ],
)
def test_where_files_of_a_board_land(
    run: Run, boards: Path, here: Path, arguments: tuple[str, ...], there: list[str]
) -> None:
    before = files_below(here)
    result = run("cp", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    added = {path: content for path, content in files_below(here).items() if path not in before}
    assert added.keys() == set(there)
    assert set(added.values()) <= set(files_below(boards / "demo").values())


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        (("demo:/data/log-1.csv", "lab:"), ["log-1.csv"]),
        (("demo:/data/log-1.csv", "lab:/x.jsonl"), ["x.jsonl"]),
        (("demo:/data/*.csv", "lab:/"), ["log-1.csv", "log-2.csv"]),
        (("-r", "demo:/data", "lab:/"), ["data/log-1.csv", "data/log-2.csv", "data/deep/x.bin"]),
        (("-r", "demo:/data", "a.py", "lab:"), ["data/log-1.csv", "data/log-2.csv", "data/deep/x.bin", "a.py"]),
    ],
)
def test_from_board_to_board(run: Run, boards: Path, here: Path, arguments: tuple[str, ...], there: list[str]) -> None:
    result = run("cp", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert files_below(boards / "lab").keys() == set(there)
    assert set(files_below(boards / "lab").values()) <= {
        *files_below(boards / "demo").values(),
        *files_below(here).values(),
    }


def test_a_copy_on_one_board(run: Run, boards: Path, here: Path) -> None:
    assert run("cp", "demo:/data/log-1.csv", "demo:/data/log-1.csv").exit_code == 0
    assert run("cp", "-r", "demo:/data", "demo:/data/inner").exit_code == 0
    copied = files_below(boards / "demo" / "data")
    assert copied["inner/deep/x.bin"] == copied["deep/x.bin"]
    assert "inner/inner/deep/x.bin" not in copied


def test_what_is_unchanged_stays(run: Run, here: Path) -> None:
    assert run("cp", "a.py", "b.csv", "demo:").stdout == "demo:/a.py: 6 B written\ndemo:/b.csv: 4 B written\n"
    (here / "a.py").write_text("a = 2\n")
    again = run("cp", "a.py", "b.csv", "demo:", "--skip-unchanged")
    assert again.stdout == "demo:/a.py: 6 B written\ndemo:/b.csv: unchanged\n"
    told = [json.loads(line) for line in run("cp", "demo:/a.py", "demo:/b.csv", ".", "--json").stdout.splitlines()]
    assert [(each["path"], each["output"], each["bytes"]) for each in told] == [
        ("/a.py", "a.py", 6),
        ("/b.csv", "b.csv", 4),
    ]


def test_the_first_failure_ends_the_command_and_what_was_copied_stays(run: Run, boards: Path, here: Path) -> None:
    (boards / "demo" / "b.csv").mkdir()
    result = run("cp", "a.py", "b.csv", "app/main.py", "demo:")
    assert (result.exit_code, result.stdout) == (1, "demo:/a.py: 6 B written\n")
    assert "/b.csv" in result.stderr
    assert (boards / "demo" / "a.py").exists()
    assert not (boards / "demo" / "main.py").exists()
