"""Programs on the board: brought there by `sync` and `deploy`, with the agent, and the logs that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import Inventory
from tests.support.waiting import until

from .conftest import Board


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.py").write_text("import part\nprint('version', part.V)\n")
    (folder / "part.py").write_text("V = 1\n")
    (folder / "lib" / "é.py").write_text("x = 1\n" * 500)
    return folder


@pytest.mark.needs("folders", "digests")
def test_sync_copies_what_differs_and_removes_the_rest(board: Board, app: Path) -> None:
    there = f"board:{board.path('app')}"
    assert "3 files" in board.run("sync", str(app), there).output
    again = board.run("sync", str(app), there)
    assert (again.exit_code, "part.py" in again.output) == (0, False), again.output
    (app / "part.py").write_text("V = 2\n")
    (app / "lib" / "é.py").unlink()
    assert board.run("sync", str(app), there, "--delete").exit_code == 0
    assert board.run("cat", f"{there}/part.py").stdout == "V = 2\n"
    listed = json.loads(board.run("ls", there, "-r", "--json").stdout)
    assert [entry["path"] for entry in listed if entry["kind"] == "file"] == [
        board.path("app/main.py"),
        board.path("app/part.py"),
    ]


@pytest.mark.needs("folders", "main.py")
def test_deploy_accepts_a_version_and_goes_back_from_a_bad_one(board: Board, app: Path) -> None:
    first = deployed(board, app, within=20)
    assert first["result"] == "accepted", first
    (app / "part.py").write_text("V = 2\n")
    assert deployed(board, app, within=2)["result"] != "accepted"
    # The version before runs again, and after the next start as well.
    until(lambda: runs_version_1(board))
    assert board.run("soft-reset").exit_code == 0
    until(lambda: runs_version_1(board))


def deployed(board: Board, app: Path, within: int) -> dict[str, Any]:
    """Deploy what is to print `version 1`, and return what came of it.

    A Ctrl-C that comes as the unix port's code ends may end the process, as in any terminal. Then deploy again.
    """
    while True:
        done = board.run("deploy", str(app), "--healthy", "version 1", "--within", str(within), "--json")
        (one,) = json.loads(done.stdout.splitlines()[-1])
        if "SIGINT" not in (one.get("why") or ""):
            assert done.exit_code == (one["result"] != "accepted"), done.output
            return dict(one)


def runs_version_1(board: Board) -> bool:
    """Whether version 1 runs. If the interrupt came before the program had begun, start it again."""
    shown = board.run("eval", "part.V", "--interrupt").stdout
    assert shown != "2\n"
    if shown != "1\n":
        board.run("soft-reset")
    return shown == "1\n"


@pytest.mark.needs("rename")
def test_a_log_is_collected_once(board: Board, tmp_path: Path) -> None:
    path, to = board.path("log.csv"), tmp_path / "collected"
    for text in ("1,a\n2,b\n", "3,c\n"):
        board.run("exec", f"f = open({path!r}, 'w')\nf.write({text!r})\nf.close()")
        result = board.run("collect", f"board:{path}", "-o", str(to))
        assert result.exit_code == 0, result.stderr
    found = "".join(file.read_text() for file in sorted(to.rglob("*")) if file.suffix == ".csv" and file.is_file())
    assert found == "1,a\n2,b\n3,c\n"
    assert path not in {entry.path for entry in board.client().ls("board", board.folder)}


@pytest.mark.needs("timers", "main.py")
def test_requests_work_beside_a_program_with_the_agent(board: Board) -> None:
    program = "import time, fastflight_agent\nn = 0\nwhile True:\n n += 1\n time.sleep_ms(10)\n"
    assert board.run("agent", "install").exit_code == 0
    assert board.run("put", "-", "board:/main.py", input=program).exit_code == 0
    with Inventory({"board": board.url}, agents=["board"]) as inventory:
        device = inventory.device("board")

        def counts() -> bool:
            with device.lease("a test") as session:
                return int(session.exec("print(n)").stdout) > 10

        until(counts)
        with device.lease("a test") as session:
            assert session.info().capabilities == "agent"
            session.write("/data.bin", [bytes(range(256)) * 16])
            assert b"".join(session.read("/data.bin")) == bytes(range(256)) * 16
        with device.lease("a test", interrupt=True) as session:
            assert session.info().capabilities == "none"
