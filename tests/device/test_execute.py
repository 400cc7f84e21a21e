"""The output of code on a board, as lines."""

from __future__ import annotations

from fastflight.device.execute import MAX_LINE_BYTES, OutputLines


def test_output_without_line_ends_is_cut_into_lines() -> None:
    lines = OutputLines()
    assert lines.feed(b"x" * (2 * MAX_LINE_BYTES + 1)) == ["x" * MAX_LINE_BYTES] * 2
    assert lines.feed(b"y\n") == ["xy"]
