"""Which cells `--only` chooses, and how it says that there are none."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight_benchmark.selection import Selection

CELLS = [{"rows": rows, "clients": clients} for rows in ("40", "1000") for clients in ("1", "64")]


def chosen(*given: str) -> list[int]:
    return Selection.parse(given).of(range(len(CELLS)), CELLS)


def test_values_of_a_key_are_alternatives_and_keys_are_conditions() -> None:
    assert chosen() == [0, 1, 2, 3]
    assert chosen("rows=40") == [0, 1]
    assert chosen("rows=40,1000", "clients=64") == [1, 3]
    assert chosen("rows=40", "rows=1000", "clients=1") == [0, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rows", "'rows' is not KEY=VALUE"),
        ("=40", "'=40' is not KEY=VALUE"),
        ("row=40", "no cell has 'row'. Keys of this suite: clients, rows"),
        ("rows=4", "no cell has rows=4. Use one of: 1000, 40"),
    ],
)
def test_what_chooses_nothing_is_refused(given: str, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        chosen(given)
    assert str(refused.value).startswith(f"--only: {says}")
