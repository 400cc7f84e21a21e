from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from fastflight.cli import drawing, screen
from fastflight.cli.preview import Preview
from fastflight.cli.tail import printer

# Sets a terminal's title, and its colours by the one character that some take for two.
HOSTILE = "a\x1b]0;mine\x07b\x9b31m\u202ec"
SHOWN = "a\\x1b]0;mine\\x07b\\x9b31m\\u202ec"


def test_what_a_device_calls_its_files_does_not_reach_the_terminal_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen.table(("path",), [(HOSTILE,)])
    screen.complain(f"error: {HOSTILE}\n\tline 2")
    out, err = capsys.readouterr()
    assert out.splitlines() == ["path", SHOWN]
    assert err == f"error: {SHOWN}\n\tline 2\n"


def test_columns_are_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("1", "目", "x"), ("1000", "e\u0301a", ""), ("20", "long", "y")]
    screen.table(("n", "name", "last"), rows, right=("n",))
    assert capsys.readouterr().out.splitlines() == [
        "   n  name  last",
        "   1  目    x",
        "1000  e\u0301a",
        "  20  long  y",
    ]


# Year 0, which Arrow has and Python has not, one that neither has, and a zone that nobody knows.
TIMES = [
    (pa.date32(), -719_528, "0000-01-01"),
    (pa.timestamp("s"), -62_167_219_200, "0000-01-01 00:00:00"),
    (pa.timestamp("s"), 2**40, "<value out of range: 1099511627776>"),
    (pa.timestamp("s", "Nowhere/At_All"), 5, "1970-01-01 00:00:05Z"),
]


@pytest.mark.parametrize(("type_", "value", "shown"), TIMES)
def test_a_time_that_python_does_not_have_is_shown(
    type_: pa.DataType, value: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    number = pa.int32() if type_ == pa.date32() else pa.int64()
    times = pa.array([value, None, 0], number).cast(type_)
    batch = pa.record_batch([pa.array([1, 2, 3]), times, times], ["n", "t", "u"])
    preview = Preview(batch.schema)
    preview.add(batch)
    drawing.show(preview.table())
    assert capsys.readouterr().out.splitlines()[2].split("  ")[-1].strip() == shown
    printer(batch.schema, raw=False, as_csv=False, json=True)(batch)
    assert [json.loads(line)["t"] for line in capsys.readouterr().out.splitlines()][:2] == [shown, None]
    printer(batch.schema, raw=False, as_csv=False, json=False)(batch)
    assert capsys.readouterr().out.splitlines()[0] == f"1  {shown}  {shown}"


def test_what_is_no_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.record_batch([[math.nan, math.inf, 1.5], [[-math.inf], [], None]], ["x", "l"])
    printer(batch.schema, raw=False, as_csv=False, json=True)(batch)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ['{"x": null, "l": [null]}', '{"x": null, "l": []}', '{"x": 1.5, "l": null}']


def test_every_row_is_a_line_of_csv(capsys: pytest.CaptureFixture[str]) -> None:
    """Of one column, a null is an empty line, also where it is the last."""
    batch = pa.record_batch([pa.array([1.5, None, None])], ["x"])
    show = printer(batch.schema, raw=False, as_csv=True, json=False)
    show(batch)
    show(batch)
    assert capsys.readouterr().out == "x\n1.5\n\n\n1.5\n\n\n"
