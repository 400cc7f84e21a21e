"""Finds the kinds of all cells in a column of text.

Most cells are plain: a regular expression proves that their kinds are known. `kind_of` looks only at the others.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.kinds import BOOLS, INFINITIES, MINUS_INFINITIES, NANS, NULLS, Kind, is_value, kinds_of

# Cells that are looked at one by one: they show what the others probably are.
_FIRST_CELLS = 64
# Characters of the numbers of a column, on average, most of which have too many digits for the expressions below.
_LONG_NUMBERS = 12

# Days that every year has, of the years that nanoseconds reach as a whole.
_DATE = (
    "(?:1[7-9]|2[01])[0-9]{2}-"
    "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_MOMENT = f"{_DATE}[ T]{_HOUR}:[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{{1,6}})?)?"
# For each kind, cells that are of this kind, or of another that changes no type if this one is there.
_PLAIN = {
    Kind.SPELLED: "|".join(map(re.escape, ("", *NULLS))),
    Kind.BOOL: "|".join(BOOLS),
    Kind.WHOLE: "0|[1-9][0-9]{0,14}",
    Kind.NEGATIVE: "-[1-9][0-9]{0,14}",
    Kind.BIG: "[1-9][0-9]{15,17}|[1-8][0-9]{18}",
    Kind.NEGATIVE_BIG: "-[1-9][0-9]{15,17}|-[1-8][0-9]{18}",
    Kind.HUGE: "[1-9][0-9]{18}|1[0-7][0-9]{18}",
    # A double gives back each number of 15 digits.
    Kind.FLOAT: (
        "-?(?:(?:0|[1-9][0-9]{0,3})(?:[.][0-9]{0,11})?|[1-9][0-9]{0,9}(?:[.][0-9]{0,5})?|[1-9][0-9]{0,14})"
        "(?:[eE][+-]?[0-9]{1,2})?"
    ),
    Kind.NOT_FINITE: "|".join(map(re.escape, (*NANS, *INFINITIES, *MINUS_INFINITIES))),
    Kind.DATE: _DATE,
    Kind.MOMENT: _MOMENT,
    Kind.ZONED: f"{_MOMENT}(?:Z|[+-]{_HOUR}:?[0-5][0-9])",
}


def learn_column(cells: pa.Array, known: Kind, decimal: str = ".", *, skips_text: bool = False) -> Kind:
    """Return `known` and the kinds of the cells of a column. A column with text has no other kinds.

    With `skips_text`, only numbers, times and truth values count, also those with blanks around them.
    """
    others = cells.slice(0, 0) if Kind.TEXT in known else _without_known(cells.drop_null(), known, decimal)
    few = _FIRST_CELLS
    while len(others) and Kind.TEXT not in known:
        texts = others.slice(0, few).unique().to_pylist()
        if skips_text:
            texts = [text for cell in texts if is_value(text := cell.strip(" \t"), decimal)]
        found = known | kinds_of(texts, decimal)
        others = others.slice(few)
        if found == known:  # no expression is for the others
            few = len(others)
        else:
            known, others = found, _without_known(others, found, decimal)
    return Kind.TEXT if Kind.TEXT in known else known


def _without_known(cells: pa.Array, known: Kind, decimal: str) -> pa.Array:
    """Return the cells whose kinds may not be among the known ones."""
    plain = plain_cells(known, decimal)
    if not plain or not len(cells):
        return cells
    if are_long(cells, known):
        cells = without_exact(cells, decimal)[0]
    data = cells.buffers()[2]
    if len(cells) and (data is None or b"\n" not in data.to_pybytes()):
        # A single text is matched in a fraction of the time.
        ends = pa.array(np.array([0, len(cells)], np.int32))
        text = pc.binary_join_element_wise("", pc.binary_join(pa.ListArray.from_arrays(ends, cells), "\n"), "\n")
        if pc.match_substring_regex(text, rf"\A(?:\n(?:{plain}))*\z")[0].as_py():
            return cells.slice(0, 0)
    cells = cells.filter(pc.invert(pc.match_substring_regex(cells, rf"\A(?:{plain})\z")))
    return without_exact(cells, decimal)[0] if Kind.FLOAT in known else cells


@lru_cache(maxsize=256)
def plain_cells(known: Kind, decimal: str) -> str:
    """Return a regular expression of cells of known kinds, but not of all; empty if there is none."""
    found = {kind: text for kind, text in _PLAIN.items() if kind in known}
    if Kind.FLOAT in found:
        found[Kind.FLOAT] = found[Kind.FLOAT].replace("[.]", re.escape(decimal))
    return "|".join(found.values())


def are_long(cells: pa.Array, known: Kind) -> bool:
    """Whether the cells are numbers with many digits."""
    return Kind.FLOAT in known and (pc.mean(pc.binary_length(cells)).as_py() or 0) > _LONG_NUMBERS


def without_exact(cells: pa.Array, decimal: str) -> tuple[pa.Array, pa.Array | None]:
    """Return the cells that are not the text in which Arrow writes their double, which is the shortest one.

    Also returns the doubles; None if a cell is no number.
    """
    try:
        doubles = (pc.replace_substring(cells, decimal, ".") if decimal != "." else cells).cast(pa.float64())
    except pa.ArrowInvalid:
        return cells, None
    texts = doubles.cast(cells.type)
    texts = pc.replace_substring(texts, ".", decimal) if decimal != "." else texts
    return cells.filter(pc.not_equal(texts, cells)), doubles
