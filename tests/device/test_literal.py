"""What boards print with `repr`, and what else they may print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device.literal import value


def test_what_boards_print() -> None:
    assert value("('a\\n', 32768, 3, None)") == ("a\n", 32768, 3, None)
    assert value("b'\\x00'") == b"\0"


@pytest.mark.parametrize("text", ["", "x", "(", "{[]: 1}", "(" * 5000, "-" * 100_000 + "1", "\0", "1\n2"])
def test_anything_else_is_one_error(text: str) -> None:
    with pytest.raises(ValueError):
        value(text)


@given(text=st.text(st.sampled_from("()[]{}'\"\\,:-+ab1 \n"), max_size=40))
def test_whatever_comes_raises_nothing_else(text: str) -> None:
    try:
        value(text)
    except ValueError:
        pass
