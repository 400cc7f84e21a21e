"""`fastflight mount`, from its first to its last keystroke."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Board

LEAVE = "\x1d"
PROMPT = ">>> "
WHERE = "import os; print(os.getcwd())"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    (here / "app.py").write_text("print('app', 6 * 7)\n")
    return here


@pytest.mark.needs("mount")
def test_a_folder_is_mounted_used_and_left(board: Board, here: Path) -> None:
    before = board.run("exec", WHERE).stdout
    code, shown = board.type(
        "mount",
        str(here),
        keys=[(PROMPT, "import app\r"), ("app 42\n>>> ", "open('new', 'w').write('x')\r"), (PROMPT, LEAVE)],
    )
    assert (code, "Traceback" in shown, "may still be mounted" in shown) == (0, False, False), shown
    assert "_ffmount" not in shown, shown  # nor is what fastflight types at the prompt shown
    assert (here / "new").read_text() == "x"
    assert board.run("exec", WHERE).stdout == before


@pytest.mark.needs("mount", "interrupts")
def test_leaving_ends_a_program_with_its_clean_up(board: Board, here: Path) -> None:
    (here / "app.py").write_text(
        "import time\nprint('begun')\ntry:\n while True:\n  time.sleep(0.1)\n"
        "finally:\n time.sleep(0.5)\n open('cleaned', 'w').write('up')\n"
    )
    code, shown = board.type("mount", str(here), keys=[(PROMPT, "import app\r"), ("begun", LEAVE)])
    assert (code, "may still be mounted" in shown) == (0, False), shown
    assert (here / "cleaned").read_text() == "up"
    assert board.run("exec", "print(1)").stdout == "1\n"


@pytest.mark.needs("mount", "interrupts")
def test_leaving_ends_a_program_that_catches_ctrl_c(board: Board, here: Path) -> None:
    (here / "app.py").write_text(
        "print('begun')\nfor _ in range(3):\n try:\n  while True:\n   pass\n except KeyboardInterrupt:\n  pass\n"
        "while True:\n pass\n"
    )
    code, shown = board.type("mount", str(here), keys=[(PROMPT, "import app\r"), ("begun", LEAVE)])
    assert (code, "may still be mounted" in shown) == (0, False), shown


@pytest.mark.needs("mount")
def test_code_runs_as_it_is_now(board: Board, here: Path) -> None:
    assert board.run("mount", str(here), "board", "--exec", "import app").stdout.strip() == "app 42"
    (here / "app.py").write_text("print('app', 'edited')\n")
    assert board.run("mount", str(here), "board", "--exec", "import app").stdout.strip() == "app edited"
    assert "may still" not in board.run("mount", str(here), "board", "--exec", "1").stderr


@pytest.mark.needs("mount")
def test_code_that_raises_is_an_error_and_the_folder_is_unmounted(board: Board, here: Path) -> None:
    result = board.run("mount", str(here), "board", "--exec", "1/0")
    assert (result.exit_code, "ZeroDivisionError" in result.stdout) == (1, True)
    assert "remote" not in board.run("exec", "import os; print(os.listdir('/'))").stdout


@pytest.mark.needs("mount", "main.py", "raw reset")
def test_main_py_of_the_board_does_not_run(board: Board, here: Path) -> None:
    board.run("put", "-", "board:/main.py", input="print('the program of the board')\nwhile True: pass\n")
    board.run("soft-reset")
    result = board.run("mount", str(here), "board", "--interrupt", "--exec", "import app")
    assert (result.exit_code, result.stdout.strip()) == (0, "app 42")


@pytest.mark.needs("mount")
def test_the_board_changes_the_folder(board: Board, here: Path) -> None:
    (here / "text.txt").write_text("één\ntwee\n")
    (here / "raw.bin").write_bytes(bytes(range(256)) * 40)
    (here / "log.csv").write_text("1\n")
    result = board.run("mount", str(here), "board", "--exec", WRITES)
    assert (result.stdout.replace("\r\n", "\n"), result.exit_code) == ("[1, 2] én2 7\n", 0)
    check_writes(here)


WRITES = """
import os
with open('data.bin', 'wb') as file:
    for n in range(20):
        file.write(bytes(range(256)))
with open('log.csv', 'a') as log:
    log.write('2\\n')
print([int(line) for line in open('log.csv')], end=' ')
with open('both.txt', 'w+') as file:
    file.write('één2 7')
    file.seek(2)
    print(file.read(), end='\\n')
with open('raw.bin', 'r+b') as file:
    file.seek(1)
    file.write(b'XY')
os.mkdir('made')
os.mkdir('gone')
os.rmdir('gone')
os.rename('text.txt', 'made/moved.txt')
os.remove('app.py')
with open('inside2', 'w') as file:
    file.write('not closed before the end')
left = open('left.txt', 'w')
left.write('open at the end')
"""


def check_writes(folder: Path) -> None:
    assert (folder / "data.bin").read_bytes() == bytes(range(256)) * 20
    assert (folder / "log.csv").read_text() == "1\n2\n"
    assert (folder / "both.txt").read_text() == "één2 7"
    assert (folder / "raw.bin").read_bytes() == b"\x00XY" + (bytes(range(256)) * 40)[3:]
    assert (folder / "made" / "moved.txt").read_text() == "één\ntwee\n"
    assert (folder / "left.txt").read_text() == "open at the end"
    names = set(os.listdir(folder))
    assert not {"gone", "app.py", "text.txt"} & names and not [name for name in names if name.endswith(".part")]
