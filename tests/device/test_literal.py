"""What boards print with `repr`, and what else they may print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.device.literal import text, value, whole


def test_what_boards_print() -> None:
    assert value("('a\\n', 32768, 3, None)") == ("a\n", 32768, 3, None)
    assert value("b'\\x00'") == b"\0"


@pytest.mark.parametrize("text", ["", "x", "(", "{[]: 1}", "(" * 5000, "-" * 100_000 + "1", "\0", "1\n2"])
def test_anything_else_is_one_error(text: str) -> None:
    with pytest.raises(ValueError):
        value(text)


@given(given_=st.text(st.sampled_from("()[]{}'\"\\,:-+ab1 \n"), max_size=40))
def test_whatever_comes_raises_nothing_else(given_: str) -> None:
    try:
        value(given_)
    except ValueError:
        pass


def test_numbers_of_64_bits_and_text_that_can_be_written() -> None:
    assert (whole(-1), whole(2**63 - 1), text("ü")) == (-1, 2**63 - 1, "ü")
    for odd in (2**63, -(2**63) - 1, 1.0, float("inf"), "1", None):
        with pytest.raises(ValueError):
            whole(odd)
    for odd in ("\ud800", b"x", 1):
        with pytest.raises(ValueError):
            text(odd)
