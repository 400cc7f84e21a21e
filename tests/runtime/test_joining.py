"""Small batches become larger ones out of what is there: every row once, in order, and every note in its place."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import DataError
from fastflight.runtime import joining
from fastflight.runtime.joining import ALONE_BYTES, JOINED_BYTES, Item, Sizes, gathered, joined
from fastflight.service.source import Noted

SCHEMA = pa.schema([("n", pa.int64())])


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def shown(items: Iterator[Item]) -> list[object]:
    """Rows and notes in the order that a client sees them in."""
    seen: list[object] = []
    for item in items:
        if isinstance(item, Noted):
            seen.append(dict(item.note))
        seen += (item.batch if isinstance(item, Noted) else item).column("n").to_pylist()
    return seen


def sizes_of(items: Iterator[Item]) -> list[int]:
    return [item.batch.num_rows if isinstance(item, Noted) else item.num_rows for item in items]


@st.composite
def lots(draw: st.DrawFn) -> list[list[Item]]:
    """Lots of batches and notes whose rows count up."""
    first = 0
    made: list[list[Item]] = []
    for kinds in draw(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1), max_size=6)):
        lot: list[Item] = []
        for noted, rows in kinds:
            rows_batch = batch(*range(first, first + rows))
            lot.append(Noted(rows_batch, {"before": first}) if noted else rows_batch)
            first += rows
        made.append(lot)
    return made


@given(lots(), st.one_of(st.none(), st.integers(1, 10)))
def test_every_row_and_every_note_stays_in_its_place(given_lots: list[list[Item]], most: int | None) -> None:
    items = [item for lot in given_lots for item in lot]
    assert shown(joined(given_lots, SCHEMA, most)) == shown(iter(items))
    assert [len(list(joined([lot], SCHEMA, most))) <= len(lot) for lot in given_lots] == [True] * len(given_lots)


def test_what_is_there_together_goes_together() -> None:
    assert sizes_of(joined([[batch(1)], [batch(2), batch(3), batch(4)], [batch(5), batch(6)]], SCHEMA)) == [1, 3, 2]


def test_no_more_rows_than_were_asked_for() -> None:
    lot: list[Item] = [batch(1, 2), batch(3, 4), batch(5), batch(6), batch(7, 8, 9)]
    assert sizes_of(joined([lot], SCHEMA, 3)) == [2, 3, 1, 3]


def test_a_note_is_joined_with_nothing() -> None:
    lot: list[Item] = [batch(1), batch(2), Noted(batch(), {"missing": 3}), batch(6), batch(7)]
    assert shown(joined([lot], SCHEMA)) == [1, 2, {"missing": 3}, 6, 7]
    assert sizes_of(joined([lot], SCHEMA)) == [2, 0, 2]


def test_large_batches_are_not_copied() -> None:
    large = batch(*range(ALONE_BYTES // 8))
    given = list(joined([[batch(1), batch(2), large, batch(3)]], SCHEMA))
    assert sizes_of(iter(given)) == [2, large.num_rows, 1]
    assert given[1] is large


def test_what_is_joined_has_a_bound() -> None:
    rows = ALONE_BYTES // 8 - 1
    lot: list[Item] = [batch(*range(rows))] * 40
    assert max(sizes_of(joined([lot], SCHEMA))) * 8 < JOINED_BYTES + ALONE_BYTES


def test_a_batch_of_another_schema_goes_alone() -> None:
    other = pa.record_batch([pa.array(["x"]).dictionary_encode()], ["n"])
    assert sizes_of(joined([[batch(1), batch(2), other, other, batch(3)]], SCHEMA)) == [2, 1, 1, 1]


def test_columns_that_would_shrink_are_left_as_they_are() -> None:
    truth = pa.record_batch([pa.array([True, False])], ["n"])
    assert sizes_of(joined([[truth, truth, truth]], truth.schema)) == [2, 2, 2]


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 5))
def test_a_ready_source_is_taken_in_lots(rows: list[int], at_most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "MAX_JOINED", at_most)
        taken = list(gathered(iter([batch(*range(count)) for count in rows]), SCHEMA))
    assert [item.num_rows for lot in taken for item in lot if not isinstance(item, Noted)] == rows
    assert max(len(lot) for lot in taken) <= at_most


def test_a_ready_source_that_fails_gives_what_it_had_first() -> None:
    def fails() -> Iterator[Item]:
        yield batch(1)
        yield batch(2)
        raise DataError("bad row")

    taken = gathered(fails(), SCHEMA)
    assert shown(iter(next(taken))) == [1, 2]
    with pytest.raises(DataError):
        next(taken)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.booleans())
def test_sizes_are_exact_for_slices_without_nulls(slices: list[tuple[int, int]], text: bool) -> None:
    numbers = list(range(100))
    column = pa.array([str(number) for number in numbers]) if text else pa.array(numbers, pa.int32())
    whole = pa.record_batch([column], ["n"])
    sizes = Sizes(whole.schema)
    for offset, length in slices:
        part = whole.slice(offset, length)
        assert sizes.of(part) == part.nbytes == sizes.last


def test_sizes_do_not_grow_without_end() -> None:
    sizes = Sizes(SCHEMA)
    whole = batch(*range(1_000))
    for length in range(1_000):
        assert sizes.of(whole.slice(0, length)) == 8 * length
    assert len(sizes._known) <= joining.MAX_KNOWN_SIZES
