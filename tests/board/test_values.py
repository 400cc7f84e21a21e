"""What programs print is the same on the simulated board and on real ones."""

from __future__ import annotations

import pytest

from tests.corpus.programs import PROGRAMS

from .conftest import Board


@pytest.mark.needs("folders")  # the micro:bit's MicroPython is that of 2017
def test_programs_print_the_same_on_every_board(board: Board) -> None:
    session = board.session()
    session.exec(f"import os\nos.chdir({board.folder!r})")
    printed = {}
    for name, (code, _) in PROGRAMS.items():
        output = session.exec(code)
        printed[name] = (output.stdout + output.stderr).decode().replace("\r\n", "\n")
    assert printed == {name: text for name, (_, text) in PROGRAMS.items()}
