"""What programs print is the same on the simulated board and on real ones.

`programs.txt` has programs, each with a name and what it prints. What CPython and MicroPython write differently is in
`fastflight.simulator.values`. Where the simulated board is not like a board on purpose, there is no program.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Board


def programs() -> dict[str, tuple[str, str]]:
    """By name: the code of a program, and what it prints."""
    found = {}
    for part in Path(__file__).with_name("programs.txt").read_text().removeprefix("## ").split("\n## "):
        program, _, printed = part.partition("\n->\n")
        name, _, code = program.partition("\n")
        found[name] = (code, printed)
    return found


@pytest.mark.needs("folders")  # the micro:bit's MicroPython is that of 2017
def test_programs_print_the_same_on_every_board(board: Board) -> None:
    session = board.session()
    session.exec(f"import os\nos.chdir({board.folder!r})")
    printed = {}
    for name, (code, _) in programs().items():
        output = session.exec(code)
        printed[name] = (output.stdout + output.stderr).decode().replace("\r\n", "\n")
    assert len(printed) > 80
    assert printed == {name: text for name, (_, text) in programs().items()}
