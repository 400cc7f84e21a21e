"""Commands in a terminal, from their first to their last keystroke. `mount` has a file of its own."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from .conftest import Board

CTRL_C, CTRL_D, LEAVE = "\x03", "\x04", "\x1d"
INTERRUPTED = 130


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "program.py").write_text("print('ran', 6 * 7)\n")
    return tmp_path


def test_commands_that_ask_nothing(board: Board, here: Path) -> None:
    """In one process, which takes most of the time."""
    path = board.path("a.txt")
    commands = [
        f"put a.txt board:{path}",
        f"ls {board.folder}",
        f"cat board:{path}",
        f"head -n 1 board:{path}",
        f"get board:{path} back.txt",
        f"cp board:{path} board:{board.path('b.txt')}",
        f"rm board:{board.path('b.txt')}",
        "info",
        "df",
        "exec print('said',7)",
        "eval 'x'*3",
        "run program.py",
    ]
    words = [word for command in commands for word in (*command.split(), "+")][:-1]
    code, shown = board.type(*words)
    assert code == 0, shown
    for expected in ("a.txt", "one\ntwo\n", "said 7\n", "'xxx'\n", "ran 42\n"):
        assert expected in shown, shown
    assert (here / "back.txt").read_text() == "one\ntwo\n"
    assert "Traceback" not in shown


def test_repl(board: Board) -> None:
    code, shown = board.type(
        "repl",
        keys=[("Ctrl-] leaves", "\r"), (">>> ", "x = 6\r"), (">>> ", "print(x * 7)\r"), ("\n42\n>>> ", LEAVE)],
    )
    assert (code, "Traceback" in shown) == (0, False), shown
    assert board.run("eval", "x").stdout == "6\n"


def test_repl_with_a_soft_reset(board: Board) -> None:
    keys = [
        ("Ctrl-] leaves", "\r"),
        (">>> ", CTRL_D),
        ("soft reboot", "\r"),
        (">>> ", "6 * 7\r"),
        ("\n42\n>>> ", LEAVE),
    ]
    code, shown = board.type("repl", keys=keys)
    assert code == 0, shown


def test_edit(board: Board, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = "import sys; open(sys.argv[1], 'a').write(input('more? ') + chr(10))"
    monkeypatch.setenv("VISUAL", shlex.join([sys.executable, "-c", change]))
    path = board.path("a.txt")
    board.run("put", "a.txt", f"board:{path}")
    code, shown = board.type("edit", f"board:{path}", keys=[("more? ", "three\r")])
    assert code == 0, shown
    assert board.run("cat", f"board:{path}").stdout == "one\ntwo\nthree\n"


@pytest.mark.needs("interrupts")
def test_ctrl_c_ends_code_and_the_command(board: Board) -> None:
    code, shown = board.type("exec", "print('begun')\nwhile True: pass", keys=[("begun", CTRL_C)])
    assert (code, 'Traceback (most recent call last):\n  File "<frozen' in shown) == (INTERRUPTED, False), shown
    assert board.run("eval", "6 * 7").stdout == "42\n"


@pytest.mark.needs("main.py", "interrupts")
def test_tail_shows_a_program_until_ctrl_c_and_leaves_it_alone(board: Board) -> None:
    program = "import time\nn = 0\nwhile True:\n n += 1\n print('row', n)\n time.sleep_ms(20)\n"
    board.run("put", "-", "board:/main.py", input=program)
    board.run("soft-reset")
    code, shown = board.type("tail", keys=[("row", CTRL_C)])
    assert code in (0, INTERRUPTED), shown
    assert int(board.run("eval", "n", "--interrupt").stdout) > 0


TALKS = "import time\nn = 0\nwhile True:\n n += 1\n print('{\"n\": %d}' % n)\n time.sleep_ms(20)\n"
# Each command, what is pressed when it has printed what, its exit code, and what it prints at the end.
COMMANDS: list[tuple[str, list[tuple[str, str]], int, str]] = [
    ("collect board:/log.csv -o logs --every 0.01", [("1 part, 8 B", CTRL_C)], INTERRUPTED, "interrupted"),
    ("agent install", [], 0, "/fastflight_agent.py is there"),
    ("agent remove", [], 0, "/fastflight_agent.py is gone"),
    ("deploy app --healthy begun --within 20", [], 0, "accepted"),
]


@pytest.mark.needs("folders", "digests", "main.py", "interrupts")
def test_commands_for_programs(board: Board, here: Path) -> None:
    (here / "app").mkdir()
    (here / "app" / "main.py").write_text(f"print('begun')\n{TALKS}")
    board.run("exec", "f = open('/log.csv', 'w')\nf.write('1,a\\n2,b\\n')\nf.close()")
    for command, keys, exit_code, printed in COMMANDS:
        code, shown = board.type(*command.split(), keys=keys)
        assert (code, printed in shown, "Traceback" in shown) == (exit_code, True, False), (command, shown)
    logs = [path for path in (here / "logs").rglob("*.csv") if path.is_file()]
    assert [path.read_text() for path in logs] == ["1,a\n2,b\n"]


@pytest.mark.needs("folders", "digests")
def test_sync_watch_copies_after_a_change_until_ctrl_c(board: Board, here: Path) -> None:
    (here / "app").mkdir()
    (here / "app" / "a.py").write_text("x = 1\n")
    there = f"board:{board.path('app')}"
    code, shown = board.type("sync", "--watch", "app", there, keys=[("watching", CTRL_C)])
    assert code in (0, INTERRUPTED), shown
    assert board.run("cat", f"{there}/a.py").stdout == "x = 1\n"
