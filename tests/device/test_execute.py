"""Code that runs on a board: its output as lines, and code that cannot be sent."""

from __future__ import annotations

import pytest

from fastflight.device import Inventory
from fastflight.device.execute import MAX_LINE_BYTES, OutputLines
from fastflight.errors import RequestError


def test_output_without_line_ends_is_cut_into_lines() -> None:
    lines = OutputLines()
    assert lines.feed(b"x" * (2 * MAX_LINE_BYTES + 1)) == ["x" * MAX_LINE_BYTES] * 2
    assert lines.feed(b"y\n") == ["xy"]


def test_code_with_half_a_character_is_refused_and_the_board_goes_on() -> None:
    with Inventory({"demo": "sim:?telemetry=0"}) as inventory, inventory.device("demo").lease("test") as session:
        for run in (lambda code: session.exec(code), lambda code: list(session.follow(code))):
            with pytest.raises(RequestError, match="demo: the code holds"):
                run("print('\udcff')")
        assert session.exec("print(6 * 7)").stdout == b"42\r\n"
