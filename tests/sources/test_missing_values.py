"""Words for a missing value, NaN and infinities: a file, a live session and a recording read each in the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from fastflight.log import NumberedRows
from fastflight.service.requests import DeviceSession, Recording
from fastflight.sources.recorded_rows import RecordedLines
from fastflight.sources.session_rows import SessionRows
from fastflight.tables import Layout, WholeFile, open_reader
from fastflight.tables.kinds import INFINITIES, MINUS_INFINITIES, NANS, NULLS
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch

NO_VALUE = dict.fromkeys(NULLS)
NUMBERS = {
    **dict.fromkeys(NANS, math.nan),
    **dict.fromkeys(INFINITIES, math.inf),
    **dict.fromkeys(MINUS_INFINITIES, -math.inf),
}
# For each type of the column: a value, its text, and what the words are in it. Other words do not fit, and are null.
COLUMNS: dict[str, tuple[Any, str, Mapping[str, Any]]] = {
    "int64": (7, "7", NO_VALUE),
    "uint8": (7, "7", NO_VALUE),
    "double": (2.5, "2.5", NO_VALUE | NUMBERS),
    "float": (2.5, "2.5", NO_VALUE | NUMBERS),
    "bool": (True, "true", NO_VALUE),
    "string": ("warm", "warm", {word: word for word in (*NO_VALUE, *NUMBERS)}),
}
WORDS = [*NO_VALUE, *NUMBERS]


def comparable(rows: list[dict[str, Any]]) -> list[Any]:
    """The values of `v` as text: NaN is not equal to itself."""
    return [repr(row["v"]) for row in rows]


def lines_of(format_: str, type_: str, *, quoted: bool) -> list[bytes]:
    """A line for each word, with a number that counts them, between two lines with values."""
    _, text, _ = COLUMNS[type_]
    mark = '"' if quoted else ""
    texts = [*(f"{mark}{word}{mark}" for word in WORDS)]
    value = f'"{text}"' if format_ == "jsonl" and type_ == "string" else text
    cells = [value, *texts, value]
    made = ('{{"n": {}, "v": {}}}\n' if format_ == "jsonl" else "{},{}\n").format
    return [made(n, cell).encode() for n, cell in enumerate(cells)]


def from_file(format_: str, schema: Mapping[str, str], lines: list[bytes]) -> tuple[list[dict[str, Any]], Any]:
    reader = open_reader(Layout(format_, schema=schema))
    header = b"n,v\n" if format_ == "csv" else b""
    batches = [*reader.feed(header + b"".join(lines)), *reader.finish()]
    return [row for batch in batches for row in batch.to_pylist()], reader.summary.as_dict().get("null_cells", {})


def from_traffic(format_: str, schema: Mapping[str, str], lines: list[bytes]) -> list[tuple[Any, Any]]:
    """What a live session and a recording give."""
    keys = {"format": format_, "schema": schema}
    live = SessionRows(DeviceSession.model_validate({"device": "demo", **keys}))
    recorded = RecordedLines(Recording.model_validate({"name": "demo", **keys}))
    chunks = [Chunk(n, n * 1000, "rx", line) for n, line in enumerate(lines)]
    outcomes = []
    live.begin(True)
    recorded.begin(True)
    for rows, ready in ((live, live.feed(chunks)), (recorded, recorded.add(NumberedRows(0, log_batch(chunks, {}))))):
        found = [*ready, *rows.finish()]
        summary = rows.summary()
        assert summary["rejected"] == 0
        outcomes.append(
            (
                [row for item in found for row in getattr(item, "batch", item).to_pylist()],
                summary.get("null_cells", {}),
            )
        )
    return outcomes


@pytest.mark.parametrize("type_", COLUMNS)
@pytest.mark.parametrize("format_", ["csv", "jsonl"])
@pytest.mark.parametrize("quoted", [False, True], ids=["bare", "quoted"])
def test_words_mean_the_same_everywhere(format_: str, type_: str, quoted: bool) -> None:
    schema = {"n": "int64", "v": type_}
    lines = lines_of(format_, type_, quoted=quoted)
    rows, null_cells = from_file(format_, schema, lines)
    value, _, meaning = COLUMNS[type_]
    if format_ == "jsonl" and type_ == "string" and not quoted:
        meaning = dict.fromkeys(NO_VALUE) | {word: json_text(number) for word, number in NUMBERS.items()}
    assert comparable(rows) == list(map(repr, [value, *(meaning.get(word) for word in WORDS), value]))
    misfits = sum(word not in meaning for word in WORDS)
    assert null_cells == ({"v": misfits} if misfits else {})
    for found, missing in from_traffic(format_, schema, lines):
        assert comparable(found) == comparable(rows)
        assert missing == null_cells


def json_text(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


@pytest.mark.parametrize("format_", ["csv", "jsonl"])
def test_a_whole_file_finds_the_same_words(format_: str) -> None:
    lines = lines_of(format_, "double", quoted=False)
    header = b"n,v\n" if format_ == "csv" else b""
    file = WholeFile(Layout(format_), lambda: iter([header, *lines]))
    rows = [row for batch in file.batches() for row in batch.to_pylist()]
    assert str(file.schema.field("v").type) == "double"
    assert comparable(rows) == comparable(from_file(format_, {"n": "int64", "v": "double"}, lines)[0])
