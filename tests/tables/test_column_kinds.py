"""The kinds of whole columns are those of their cells, one by one."""

from __future__ import annotations

import random

import pyarrow as pa

from fastflight.tables import Layout, ReadSummary
from fastflight.tables.casting import cast
from fastflight.tables.column_kinds import learn_column
from fastflight.tables.csv import CsvGrammar
from fastflight.tables.dialect import Dialect
from fastflight.tables.kinds import Kind, kind_of, kinds_of, type_of
from fastflight.tables.rows import BLOCK_BYTES, RowBlock

CELLS = {
    "whole": ["0", "7", "-3", "12345678", "999999999999999", "-999999999999999"],
    "beyond a double": ["9007199254740992", "9007199254740993", "9223372036854775807", "-9223372036854775808"],
    "beyond int64": ["9223372036854775808", "18446744073709551615"],
    "beyond uint64": ["18446744073709551616", "99999999999999999999999"],
    "odd whole": ["-0", "007", "00", "+5", "0x1F", "-007", "1_0", " 5", "5 "],
    "fraction": ["0.5", "-0.25", ".5", "5.", "-.5", "0.0", "-0.0", "00.5", "-00.5", "+1.5", "1234567.125"],
    "long fraction": ["0.1234567890123456", "0.8593923279108644", "0.85939232791086440", "737.73631735531802",
                      "0.30000000000000004", "0.30000000000000003", "4503599627370497.5", "0.1000000000000000055511",
                      "0.10000000000000001", "0.99999999999999985"],
    "exponent": ["1e5", "1E-5", "1.5e+300", "12e456", "1e-400", "5e-324", "1.2345678901234567e-05", "1e005",
                 "5.118216247002567165e-01", "5.118216247002567166e-01", "1.000000000000000000E+00", "-0e5",
                 "0.0e-3", "0e5", "1.25e99", "123456789012345e-99", "1234567890123456e-99", "1e999", "007e5", "00.5e1",
                 "1.7976931348623157e308", "1.7976931348623159e308", "2.2250738585072011e-308", "4e-324", "1.e3",
                 ".5e3", "12345678901234567890e10", "1.2345678901234567e5", "123456.78901234567E-2"],
    "not finite": ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "nan(1)", "iNf"],
    "missing": ["N/A", "--", "None", ""],
    "bool": ["true", "False"],
    "date": ["2026-01-31", "1700-02-28", "0001-01-01", "9999-12-31", "2026-02-30"],
    "moment": ["2026-01-31 23:59:59", "2026-01-31T23:59", "2026-01-31 23:59:59.123456", "1600-01-01 00:00:00"],
    "odd moment": ["2026-01-31 23", "2026-01-31 235959", "2026-01-31 24:00:00", "2026-01-31 23:59:59."],
    "fine moment": ["2026-01-31 23:59:59.123456789"],
    "moment with a zone": ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.5Z", "2026-01-31 23:59+01:00",
                           "2026-01-31T23:59:59.25-0130", "2026-01-31T23:59+0000"],
    "odd zone": ["2026-01-31T23:59:59z", "2026-01-31T23:59:59+01", "2026-01-31T23Z"],
}  # fmt: skip


def test_a_column_has_the_kinds_of_its_cells_in_any_mixture_and_order() -> None:
    chance = random.Random(40)
    for _ in range(1000):
        pools = chance.sample(list(CELLS.values()), chance.choice((1, 1, 2, 3)))
        cells = [chance.choice(pool) for pool in pools for _ in range(chance.randrange(1, 6))]
        chance.shuffle(cells)
        cut = chance.randrange(len(cells))
        known = learn_column(pa.array(cells[:cut], pa.string()), Kind(0))
        kinds = learn_column(pa.array(cells[cut:], pa.string()), known)
        assert type_of(kinds) == type_of(kinds_of(cells)), cells
        _, misfits = cast(pa.array(cells, pa.string()), type_of(kinds))
        assert not len(misfits)


def test_no_kind_that_changes_a_type_is_missed_whatever_is_known() -> None:
    """Alone in a column whose kinds are known, each cell gives the types of its kind, also beside a third one."""
    known = {kind_of(cell) for cells in CELLS.values() for cell in cells}
    for kinds in known:
        for cell in (cell for cells in CELLS.values() for cell in cells):
            learned, expected = learn_column(pa.array([cell], pa.string()), kinds), kinds | kind_of(cell)
            for third in known:
                assert type_of(learned | third) == type_of(expected | third), (kinds, cell, third)


def test_a_column_of_doubles_holds_only_numbers_that_they_give_back() -> None:
    chance = random.Random(17)
    for number in (chance.random(), chance.gauss(0, 100), *(chance.random() * 10.0**n for n in range(-320, 300))):
        text = repr(number)
        for cell in (text, f"{number:.{chance.choice((15, 16, 17, 18))}g}", text[:-1] + chance.choice("0123456789")):
            for decimal in (".", ","):
                written = cell.replace(".", decimal)
                kinds = learn_column(pa.array([written] * 3, pa.string()), Kind.FLOAT, decimal)
                assert type_of(kinds) == type_of(kind_of(written, decimal) | Kind.FLOAT), written


def test_rows_that_show_nothing_new_are_read_like_their_text() -> None:
    chance = random.Random(5)
    for _ in range(12):
        first, last = chance.sample(list(CELLS.values()), 2)
        texts = [["x", "", "N/A"], ['"y, z"', "x"], ["1", "2.5"]][chance.randrange(3)]
        grammar = CsvGrammar(Layout("csv"), Dialect(names=("a", "b", "")))
        kinds, blocks = Kind(0), []
        for pool in (first, first, first, [*first, *last] if chance.random() < 0.5 else first):
            cells = chance.choices(chance.sample(pool, min(len(pool), 3)), k=BLOCK_BYTES // 4)
            kinds |= kinds_of({*cells} - {""})
            lines = [f"{cell},{chance.choice(texts)}," for cell in cells]
            blocks.append(RowBlock(0, "".join(line + chance.choice(("\n", "\r\n")) for line in lines).encode()))
        summary = ReadSummary()
        held = [grammar.learn(block, summary) for block in blocks]
        grammar.learned()
        assert grammar.schema is not None
        assert (grammar.schema.field("a").type, summary.rejected) == (type_of(kinds), 0)
        for rows, block in zip(held, blocks, strict=True):
            (expected,) = grammar.read(block, summary)
            if grammar.reads(rows):
                (read,) = grammar.read(rows, summary)
                assert read.schema == expected.schema
                for column, other in zip(read.columns, expected.columns, strict=True):
                    assert column.cast(pa.string()).equals(other.cast(pa.string()))
        assert summary.null_cells == {}
