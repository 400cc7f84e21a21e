"""Lines by themselves: rows of those that fit, reasons for the others, nothing that one line does to the next."""

from __future__ import annotations

import pytest

from fastflight.errors import RequestError
from fastflight.tables import LineParser
from fastflight.tables.recognition import recognise


def test_rows_say_which_line_they_came_from() -> None:
    parser = LineParser("csv", {"a": "int64", "b": "string"})
    parsed = parser.parse([b"1,x\r", b"", b"no", b"a,b", b'2,"y,z"', b'3,"open', b"4,w\n"])
    assert parsed.rows.to_pydict() == {"a": [1, 2, 4], "b": ["x", "y,z", "w"]}
    assert parsed.lines == [0, 4, 6]
    assert [line for line, _ in parsed.refused] == [2, 5]
    assert "quote" in parsed.refused[1][1]


def test_a_parser_goes_on() -> None:
    parser = LineParser("jsonl", {"a": "int64"})
    for start in (0, 10, 20):
        parsed = parser.parse([b"\xef\xbb\xbfx", b'{"a": %d}' % start, b"[]"])
        assert (parsed.rows.to_pydict(), parsed.lines) == ({"a": [start]}, [1])
        assert [line for line, _ in parsed.refused] == [0, 2]
    assert parser.parse([]).rows.num_rows == 0


def test_names_that_need_quotes() -> None:
    assert LineParser("csv", {"a,b": "int64", 'c"': "int64"}).parse([b"1,2"]).rows.to_pydict() == {
        "a,b": [1],
        'c"': [2],
    }


def test_a_schema_that_cannot_be() -> None:
    with pytest.raises(RequestError):
        LineParser("csv", {"a": "list<int64>"})


def test_dictionaries_as_python_prints_them_are_recognised() -> None:
    lines = [f"{{'t': {n}, 'celsius': 20.{n}, 'ok': True, 'note': None}}\r\n".encode() for n in range(5)]
    found = recognise([b"hello, it's me\r\n", *lines])
    assert found is not None and found.format == "jsonl"
    parsed = found.parser().parse(lines)
    assert parsed.rows.to_pylist()[3] == {"t": 3, "celsius": 20.3, "ok": True, "note": None}
    assert not parsed.refused


@pytest.mark.parametrize("lines", [[b"\r%d,2%d.5" % (n, n) for n in range(5)], [b'\r{"t": %d}' % n for n in range(5)]])
def test_lines_that_end_with_lf_and_cr_are_rows(lines: list[bytes]) -> None:
    lines[0] = lines[0].removeprefix(b"\r")
    found = recognise(lines)
    assert found is not None
    parsed = found.parser().parse([*lines, b"\r"])
    assert parsed.rows.column(0).to_pylist() == [0, 1, 2, 3, 4]
    assert not parsed.refused


@pytest.mark.parametrize("line", [b'{"t": 1}\n', b"1,2\n"])
def test_three_lines_make_a_table_and_two_do_not(line: bytes) -> None:
    assert recognise([line] * 3) is not None
    assert recognise([line] * 2) is None
