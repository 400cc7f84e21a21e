"""The compacted rows of a log as Parquet files: other logs are not in them, and damage is noticed."""

from __future__ import annotations

import io
import os
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight.errors import DataError
from fastflight.log import EVERYTHING, Range, Store, StoredFile, StoredRows, compact
from fastflight.log.footer import footer_of
from tests.log.rows import batch_of, missing, numbers, time_of
from tests.log.test_compaction import SMALL, filled

# `filled` leaves out the numbers 23 to 25 of each log.
HOLE = {23, 24, 25}


def content(file: StoredFile) -> bytes:
    return file.read(0, file.size)


def numbers_in(rows: StoredRows) -> set[int]:
    """The numbers of the rows that an engine finds in the files, by the columns of Parquet."""
    found: set[int] = set()
    for file in rows.files:
        table = pq.read_table(io.BytesIO(content(file)))
        assert len(set(table["fastflight.log"].to_pylist())) == 1
        found |= set(table["fastflight.seq"].to_pylist())
    return {number for number in found if rows.first <= number <= rows.last}


@pytest.mark.parametrize(
    ("wanted", "limit"),
    [
        (EVERYTHING, None),
        (EVERYTHING, 7),
        (EVERYTHING, 10**6),
        (Range(3, 17), None),
        (Range(from_seq=24), 3),
        (Range(from_time=time_of(5), until_time=time_of(20)), None),
        (Range(until_seq=0), None),
        (Range(from_seq=10**6), None),
        (Range(from_time=time_of(10**6)), None),
    ],
)
def test_files_and_the_rest_have_all_rows(tmp_path: Path, wanted: Range, limit: int | None) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        log = store.log("a")
        compact(store)
        log.append(batch_of("a", log.next_seq, 2)).result()
        expected = sorted(numbers(log.read(wanted)))[:limit]
        with closing(log.stored(wanted, limit)) as rows:
            rest = Range(max(rows.end, wanted.from_seq or 0), wanted.until_seq, wanted.from_time, wanted.until_time)
            stop = rest.until_seq is not None and rest.until_seq < (rest.from_seq or 0)
            others = set() if rows.whole or stop else numbers(log.read(rest))
            stored = numbers_in(rows)
        both = stored | others
        assert set(expected) <= both  # an engine applies the times and the limit again
        assert not others or max(stored, default=-1) < min(others)
        if limit is not None and rows.whole:
            assert sorted(both) == expected


def test_a_file_has_nothing_of_other_logs(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        compact(store)
        names = {}
        for name in ("a", "b"):
            with closing(store.log(name).stored()) as rows:
                for file in rows.files:
                    whole = content(file)
                    assert set(pq.read_table(io.BytesIO(whole))["fastflight.log"].to_pylist()) == {name}
                    assert b"".join(file.read(at, 1000) for at in range(0, file.size, 1000)) == whole
                    places = {at: file.descriptor(at, 100) for at in range(0, file.size, 100)}
                    at_same_place = {at: found for at, found in places.items() if found is not None}
                    assert 0 < len(at_same_place) < len(places)
                    for at, descriptor in at_same_place.items():
                        assert os.pread(descriptor, 100, at) == whole[at : at + 100]
                    assert file.read(file.size, 10) == b""
                assert numbers_in(rows) == numbers(store.log(name).read())
                names[name] = {file.name for file in rows.files}
        assert names["a"] and not names["a"] & names["b"]


def test_numbers_without_rows_are_counted(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        compact(store)
        with closing(store.log("a").stored()) as rows:
            assert (rows.gaps, rows.lost) == (1, len(HOLE))
        with closing(store.log("a").stored(Range(until_seq=20))) as rows:
            assert (rows.gaps, rows.lost) == (0, 0)


def test_damage_is_an_error_once_and_a_hole_from_then_on(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        compact(store)
        parquet = min(tmp_path.glob("*.1of2.parquet"))
        metadata = pq.read_metadata(parquet)
        column = metadata.row_group(0).column(1)
        whole = bytearray(parquet.read_bytes())
        whole[column.data_page_offset + 5] ^= 1
        parquet.write_bytes(whole)
        with closing(store.log("a").stored()) as rows, pytest.raises(DataError, match="damaged"):
            content(rows.files[0])
        log = store.log("a")
        with closing(log.stored()) as rows:
            assert numbers_in(rows) == numbers(log.read())
            assert rows.lost == sum(last + 1 - first for first, last, _ in missing(log.read()))
            assert rows.lost > len(HOLE)


def test_a_footer_has_the_row_groups_that_are_chosen(tmp_path: Path) -> None:
    sink = io.BytesIO()
    table = pa.table({"n": list(range(40)), "s": [str(n) for n in range(40)]})
    pq.write_table(table, sink, row_group_size=1)
    whole = sink.getvalue()
    size = int.from_bytes(whole[-8:-4], "little") + 8
    data, footer = whole[:-size], whole[-size:]
    for groups in ([0], [39], [3, 5, 8], list(range(14)), list(range(15)), list(range(40))):
        made = footer_of(footer, groups, len(groups))
        assert pq.read_table(io.BytesIO(data + made))["n"].to_pylist() == groups
        assert (made == footer) == (len(groups) == 40)
    for end in range(0, size - 16, 7):
        with pytest.raises(ValueError):
            footer_of(footer[:end], [0], 1)
