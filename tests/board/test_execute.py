"""Code on the board: its output, its errors, the three ways to stop it, and soft resets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastflight.device import Inventory, Session
from fastflight.errors import DeviceException, TransportTimeout

from .conftest import Board


def test_output_comes_in_pieces_and_whole(board: Board) -> None:
    session = board.session()
    code = "import time\nfor i in range(5):\n print('piece', i, end=' ')\n time.sleep_ms(60)\nprint('é\\x04>')"
    pieces = [piece for piece in session.follow(code) if piece]
    assert len(pieces) > 1
    assert b"".join(pieces).decode().replace("\r\n", "\n") == "piece 0 piece 1 piece 2 piece 3 piece 4 é\x04>\n"


def test_much_output(board: Board) -> None:
    said = b"".join(board.session().follow("for i in range(500): print('line', i)"))
    assert said.decode().split() == [word for i in range(500) for word in ("line", str(i))]


def test_lines_by_a_server(board: Board) -> None:
    result = board.run("exec", "for i in range(3):\n print('line', i)\nprint('end', end='')")
    assert (result.exit_code, result.stdout) == (0, "line 0\nline 1\nline 2\nend\n")
    assert board.run("eval", "'a' * 3, 6 * 7").stdout == "('aaa', 42)\n"


def test_code_that_raises(board: Board) -> None:
    session = board.session()
    said = b""
    with pytest.raises(DeviceException, match="ValueError: bad thing"):
        for piece in session.follow("print('before')\nraise ValueError('bad thing')"):
            said += piece
    assert said.split() == [b"before"]
    with pytest.raises(DeviceException, match="SyntaxError"):
        list(session.follow("1 +"))
    assert session.exec("print(6 * 7)").stdout.strip() == b"42"


@pytest.mark.parametrize("size", [3000, 20_000])
@pytest.mark.needs("large files")
def test_long_code(board: Board, size: int) -> None:
    code = "x = 0\n" + "x += 1 # counts\n" * (size // 16) + "print(x)"
    assert board.session().exec(code).stdout.strip() == str(size // 16).encode()


@pytest.mark.needs("interrupts")
def test_code_that_is_silent_too_long_is_stopped(board: Board) -> None:
    session = board.session()
    with pytest.raises(TransportTimeout, match="was stopped"):
        list(session.follow("print('begun')\nwhile True: pass", timeout=0.5))
    assert session.exec("print(6 * 7)").stdout.strip() == b"42"


# What runs, and the variable `said` when it has been stopped.
PROGRAMS = {"cleans up": ["cleaning", "cleaned"], "never waits": []}
CODE = {
    "cleans up": """\
try:
 print('begun')
 while True: time.sleep_ms(100)
finally:
 said.append('cleaning')
 time.sleep_ms(700)
 said.append('cleaned')
""",
    "never waits": "print('begun')\nwhile True: pass\n",
    "catches everything": """\
while True:
 try:
  print('begun')
  while True: time.sleep_ms(1)
 except: said[:] = ['caught']
""",
}


def start(session: Session, program: str) -> Iterator[bytes]:
    """Run the program, and return the rest of its output. It goes on when the caller leaves the session."""
    running = session.follow(f"import time\nsaid = []\n{CODE[program]}")
    printed = b""
    while b"begun" not in printed:
        printed += next(running)
    return running


@pytest.mark.needs("interrupts")
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_stopped(board: Board, program: str) -> None:
    with Inventory({"board": board.url}) as inventory:
        device = inventory.device("board")
        with device.lease("a test") as session:
            running = start(session, program)
        with device.lease("a test", interrupt=True) as session:
            answer = session.exec("print(said)")
            assert (answer.stdout.strip().decode(), answer.stderr) == (repr(PROGRAMS[program]), b"")
        running.close()


@pytest.mark.needs("interrupts")
def test_a_program_that_catches_everything_is_stopped_or_named(board: Board) -> None:
    with Inventory({}) as inventory:
        inventory.add("board", board.url, grace=0.5)
        with inventory.device("board").lease("a test") as session:
            start(session, "catches everything").close()
            try:
                assert session.exec("print(said)").stdout.strip() == b"['caught']"
            except TransportTimeout as error:
                # On a fast chip, as QEMU's now and then, the next Ctrl-C finds the program back in `try`.
                assert "does not end: it catches KeyboardInterrupt" in error.what
                assert "Reset the board: with its button" in error.hint


def test_a_soft_reset_forgets_variables_and_keeps_files(board: Board) -> None:
    with Inventory({"board": board.url}) as inventory:
        device = inventory.device("board")
        with device.lease("a test") as session:
            session.write(board.path("kept"), [b"kept"])
            session.exec("x = 1")
            session.soft_reset(main="main.py" not in board.lacks)
        with device.lease("a test") as session:
            assert "NameError" in session.exec("print(x)").stderr.decode()
            assert b"".join(session.read(board.path("kept"))) == b"kept"


@pytest.mark.needs("main.py", "raw reset")
def test_main_py_runs_after_a_soft_reset_and_not_without_it(board: Board) -> None:
    with Inventory({"board": board.url}) as inventory:
        device = inventory.device("board")
        with device.lease("a test") as session:
            session.write("/main.py", [b"ran = 'main'\n"])
            session.soft_reset()
        with device.lease("a test") as session:
            assert session.exec("print(ran)").stdout.strip() == b"main"
            session.soft_reset(main=False)
        with device.lease("a test") as session:
            assert "NameError" in session.exec("print(ran)").stderr.decode()
