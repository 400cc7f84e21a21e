"""The variables of the board's `__main__` belong to its program: no command changes or needs them."""

from __future__ import annotations

from pathlib import Path

from .conftest import Board

# Names of a program, among them those that fastflight's code on the board has used.
VARIABLES = "n, p, m, k, a, f, s, os, _c, t, sys, x = range(12)"
# What a program may have replaced.
SHADOWS = (
    "len = repr = min = max = open = print = bytes = getattr = range = str = int = list = bytearray = "
    "memoryview = sorted = sum = tuple = isinstance = eval = __import__ = None"
)
NAMES = "print(sorted((name, value) for name, value in globals().items() if type(value) is int))"


def every_command(board: Board, here: Path) -> None:
    """Run each command that does something on a board; each must do it."""
    (here / "sub").mkdir(parents=True)
    (here / "a.txt").write_text("one\n")
    (here / "sub" / "b.csv").write_text("x,y\n1,2\n")
    a = board.path("a.txt")
    commands: list[tuple[str, ...]] = [
        ("put", f"{here}/a.txt", f"board:{a}"),
        ("cat", f"board:{a}"),
        ("head", f"board:{a}"),
        ("get", f"board:{a}", f"{here}/back.txt"),
        ("cp", f"board:{a}", f"board:{board.path('c.txt')}"),
        ("ls", f"board:{board.folder}"),
        ("df",),
        ("info",),
    ]
    if "rename" not in board.lacks:
        commands.append(("collect", f"board:{board.path('c.txt')}", "-o", f"{here}/collected"))
    if "folders" not in board.lacks:
        tree = board.path("tree")
        commands += [
            ("put", "-r", str(here), f"board:{tree}"),
            ("sync", str(here), f"board:{tree}"),
            ("mv", f"board:{tree}/a.txt", f"board:{tree}/d.txt"),
            ("hash", f"board:{tree}/d.txt"),
            ("mkdir", f"board:{tree}/new"),
            ("get", "-r", f"board:{tree}", f"{here}/tree"),
            ("rm", "-r", "--yes", f"board:{tree}"),
        ]
    for command in (*commands, ("rm", f"board:{a}")):
        result = board.run(*command)
        assert result.exit_code == 0, (command, result.stderr)


def test_no_command_changes_or_needs_the_variables_of_the_program(board: Board, tmp_path: Path) -> None:
    board.run("exec", VARIABLES)
    before = board.run("exec", NAMES).stdout
    assert board.run("exec", SHADOWS).exit_code == 0
    every_command(board, tmp_path / "here")
    shadows = SHADOWS.split(" = ")[:-1]
    assert board.run("exec", f"del {', '.join(shadows)}").exit_code == 0  # all of them are there
    assert board.run("exec", NAMES).stdout == before
    # Nor does one leave names behind.
    assert "_ff" not in board.run("exec", "print([name for name in globals() if name[:3] == '_ff'])").stdout


def test_eval_shows_a_value_whatever_the_program_calls_its_variables(board: Board) -> None:
    assert board.run("exec", SHADOWS + "\nexec = globals = dict = None\nx = 'its own'").exit_code == 0
    assert board.run("eval", "x, len  # a comment").stdout == "('its own', None)\n"
    raising = board.run("eval", "1 / 0")
    assert (raising.exit_code, raising.stdout) == (1, "")
    # Whatever the outcome, no name of ours stays.
    assert "NameError" in board.run("eval", "_ff").stderr


def test_eval_shows_a_value_when_the_program_has_replaced_repr(board: Board) -> None:
    board.run("exec", "import builtins\ntry:\n builtins.repr = None\nexcept AttributeError:\n pass")
    assert board.run("eval", "'a', 6 * 7").stdout == "('a', 42)\n"
