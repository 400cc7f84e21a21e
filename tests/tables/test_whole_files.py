"""Files as people have them: every row is in the table with the value that the file has, and the rest is told."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.errors import DataError
from fastflight.tables import Layout, TextOptions, WholeFile, open_reader
from fastflight.tables.kinds import Kind
from fastflight.tables.shapes import Shape, joined, shapes_from_json
from fastflight.tables.text import HELD_BYTES, WHOLE_BLOCK_BYTES

NAN = "nan"


def whole(data: bytes, format_: str = "csv", columns: tuple[str, ...] | None = None, **text: Any) -> Any:
    layout = Layout(format_, columns=columns, text=TextOptions(**text))
    file = WholeFile(layout, lambda: iter([data]))
    table = pa.Table.from_batches(list(file.batches()), file.schema)
    table.validate(full=True)
    told = file.summary.as_dict()
    assert told.pop("rows") == table.num_rows
    types = {field.name: str(field.type) for field in file.schema}
    return types, table, told


def shown(values: Iterable[Any]) -> list[Any]:
    return [NAN if isinstance(value, float) and math.isnan(value) else value for value in values]


LONG = b"t,temp\n" + b"1,20\n" * 3000 + b"2,20.5\n" * 400 + b"3,21\n" * 1600
LATE = b'{"t":1,"temp":2.5}\n' * 1500 + b'{"t":2,"temp":3,"co2":400}\n' * 1500
ODD = b"".join(b'{"t": %s}\n' % each for each in (*b"nan inf -inf None NAN -nan N/A --".split(), b'"N/A"', b"1"))
ODD_VALUES = [NAN, math.inf, -math.inf, None, NAN, NAN, None, None, None, 1.0]
SPELLED = b"t,n\n" + b"".join(b"%s,1\n" % each for each in b"nan inf -inf None NAN -nan N/A -- null 1".split())
TOA5 = (
    b'"TOA5","CR1000","x"\n"TIMESTAMP","RECORD","T_Avg"\n"TS","RN","Deg C"\n"","","Avg"\n'
    b'"2024-01-01 00:00:00",1,"NAN"\n"2024-01-01 00:01:00",2,5.5\n'
)
INTS = {"a": "int64", "b": "int64"}
NO_HEADER = {"notes": ["no header: the first line holds values"]}

# The file; the columns with their types, values of the last column (None: any), and what is told besides the rows.
CSV = {
    "a fraction after thousands of whole numbers": (LONG, {"t": "int64", "temp": "double"}, None, {}),
    "values after thousands of empty cells": (
        b"a,b\n" + b"1,\n" * 3000 + b"1,9.5\n1,10.2\n1,100.1\n", {"a": "int64", "b": "double"}, None, {},
    ),
    "the header again": (
        b"t,temp\n" + b"1,2.5\n" * 50 + b"t,temp\n" + b"1,2.5\n" * 50, {"t": "int64", "temp": "double"}, [2.5] * 100,
        {"headers_skipped": 1},
    ),
    "NULs before a number": (
        b"a,b\n1,2\n" + b"\0" * 4096 + b"3,4\n5,6\n", INTS, [2, 6],
        {"rejected": 1, "rejected_rows": [{"offset": 8, "reason": "4096 NUL bytes in the row"}]},
    ),
    "more cells than names": (
        b"a,b\n" + b"1,2,3\n" * 3, {**INTS, "_3": "int64"}, [3] * 3,
        {"notes": ["rows have more cells than the header: _3 added"]},
    ),
    "words for no value": (SPELLED, {"t": "double", "n": "int64"}, None, {}),
    "no header": (b"12.5,44\n13,45\n14,46\n", {"column_1": "double", "column_2": "int64"}, [44, 45, 46], NO_HEADER),
    "no header, with a time": (
        b"2024-01-01T00:00:00,a\n2024-01-01T00:00:01,b\n", {"column_1": "timestamp[us]", "column_2": "string"},
        ["a", "b"], NO_HEADER,
    ),
    "no header, a name beside each value": (
        b"temp:20.5,hum:40\ntemp:20.6,hum:41\ntemp:-3.5,hum:42\n", {"column_1": "string", "column_2": "string"},
        ["hum:40", "hum:41", "hum:42"], NO_HEADER,
    ),
    "no header, the same line again": (b"step-5\n" * 3, {"column_1": "string"}, ["step-5"] * 3, NO_HEADER),
    "numbered names above text": (
        b"s1,s2\non,off\noff,on\non,on\n", {"s1": "string", "s2": "string"}, ["off", "on", "on"], {},
    ),
    "a name twice": (
        b"a,a\n1,2\n", {"a": "int64", "a_2": "int64"}, [2], {"notes": ["column names repeated: 'a' is 'a_2'"]},
    ),
    "names missing": (
        b"a,b,,\n1,2,3,4\n", {**INTS, "column_3": "int64", "column_4": "int64"}, [4],
        {"notes": ["columns without a name: column_3, column_4"]},
    ),
    "semicolons and decimal commas": (
        b"Zeit;Temp, C;Feuchte, %\n10:00;21,5;40,1\n10:01;21,6;40,2\n",
        {"Zeit": "string", "Temp, C": "double", "Feuchte, %": "double"}, [40.1, 40.2], {},
    ),
    "decimal commas alone": (
        b"Temp, C;Feuchte, %\n21,5;40,1\n", {"Temp, C": "double", "Feuchte, %": "double"}, [40.1], {},
    ),
    "semicolons and a text with decimal commas": (
        b"Datum;Zeit;Wert\n01.02.2026;10:00;1,5\n02.02.2026;10:01;2,5\n",
        {"Datum": "string", "Zeit": "string", "Wert": "double"}, [1.5, 2.5], {},
    ),
    "semicolons, points of thousands and decimal commas": (
        b"t;v\n1;1.234,5\n2;2.000,5\n", {"t": "int64", "v": "string"}, ["1.234,5", "2.000,5"], {},
    ),
    "a title with a comma above semicolons": (
        b"Export of logger 5, version 2\nDatum;Wert\n01.02.2026;1,5\n02.02.2026;2,5\n",
        {"Datum": "string", "Wert": "double"}, [1.5, 2.5], {"notes": ["1 line before the header skipped"]},
    ),
    "two titles with commas above semicolons": (
        b"Station Nord, Halle 3\nMessung vom 3. Mai, 12 Uhr\nt;temp\n1;21,5\n2;22,5\n",
        {"t": "int64", "temp": "double"}, [21.5, 22.5], {"notes": ["2 lines before the header skipped"]},
    ),
    "two titles with commas above commas": (
        b"Logger 5, hall 3\nDate, 2024\nt,temp\n1,2.5\n3,4.5\n",
        {"t": "int64", "temp": "double"}, [2.5, 4.5], {"notes": ["2 lines before the header skipped"]},
    ),
    "a title of as many cells, and one without": (
        b"Logger 5, hall 3, north\n2024\nt,temp,n\n1,2.5,a\n3,4.5,b\n",
        {"t": "int64", "temp": "double", "n": "string"}, ["a", "b"], {"notes": ["2 lines before the header skipped"]},
    ),
    "blanks in the names alone": (b"t, temp\n1,2.5\n", {"t": "int64", "temp": "double"}, [2.5], {}),
    "blanks in the names alone, above text": (
        b"t, name\nx,y\nz,w\n", {"t": "string", "name": "string"}, ["y", "w"], {},
    ),
    "a title with a comma above names and numbers": (
        b"Logger 5, hall 3\nt,temp\n1,2.5\n3,4.5\n", {"t": "int64", "temp": "double"}, [2.5, 4.5],
        {"notes": ["1 line before the header skipped"]},
    ),
    "a name above numbers with decimal commas": (
        b"Messung\n21,5\n22,0\n", {"Messung": "double"}, [21.5, 22.0],
        {"notes": ["one column: the commas were read as decimal signs"]},
    ),
    "a title above rows of three numbers": (
        b"Messung\n21,5,1\n22,0,2\n", {"column_1": "int64", "column_2": "int64", "column_3": "int64"}, [1, 2],
        {"notes": [*NO_HEADER["notes"], "1 line before the header skipped"]},
    ),
    "the delimiter in the first line, as Excel reads it": (
        b"sep=;\r\nt;v\r\n1;2,5\r\n", {"t": "int64", "v": "double"}, [2.5], {},
    ),
    "titles without a comma above two columns of numbers": (
        b"Device: X1\nSerial: 123\n\na,b\n1,2\n3,4\n", INTS, [2, 4], {"notes": ["2 lines before the header skipped"]},
    ),
    "hexadecimal numbers below one name": (b"a\n00FF\n12E4\n1234\n", {"a": "string"}, ["00FF", "12E4", "1234"], {}),
    "blanks after commas": (
        b"t, temp, hum\n1, 2.5, x y\n", {"t": "int64", "temp": "double", "hum": "string"}, ["x y"], {},
    ),
    "padded numbers": (b"a,b\n  1,  2.5\n 10, 12.5\n", {"a": "int64", "b": "double"}, [2.5, 12.5], {}),
    "comments before the header": (
        b"# logger 5\n# site 7\n\na,b\n1,2\n# pause\n3,4\n", INTS, [2, 4],
        {"notes": ["2 lines before the header skipped"]},
    ),
    "names in a comment": (b"# a b\n1 2\n3 4\n", INTS, [2, 4], {}),
    "a Campbell logger": (
        TOA5, {"TIMESTAMP TS": "timestamp[us]", "RECORD RN": "int64", "T_Avg Deg C Avg": "double"}, [NAN, 5.5],
        {"notes": ["the names were joined from 3 lines", "1 line before the header skipped"]},
    ),
    "units below the names": (
        b"time,temp\ns,degC\n1,2.5\n2,3.5\n", {"time s": "int64", "temp degC": "double"}, [2.5, 3.5],
        {"notes": ["the names were joined from 2 lines"]},
    ),
    "units of half of the numbers": (
        b"n,temp\n,degC\n1,2.5\n2,3.5\n", {"n": "int64", "temp degC": "double"}, [2.5, 3.5],
        {"notes": ["the names were joined from 2 lines"]},
    ),
    "a row with one text below the names": (
        b"n,temp,note\n,,m\n1,2.5,3\n2,3.5,4\n", {"n": "int64", "temp": "double", "note": "string"},
        ["m", "3", "4"], {},
    ),
    "a latin-1 byte in the header": (
        "t,Temp °C\n1,2.5\n".encode("latin-1"), {"t": "int64", "Temp °C": "double"}, [2.5],
        {"notes": ["the file is not UTF-8: it was read as cp1252"]},
    ),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16"), INTS, [2], {}),
    "a whole number beyond int64": (b"a\n10699247336865531002\n1\n", {"a": "uint64"}, [10699247336865531002, 1], {}),
    "a number beyond a double": (b"a\n12e456\n1\n", {"a": "string"}, ["12e456", "1"], {}),
    "an identifier beside a fraction": (
        b"a\n123456789012345678\n1.5\n", {"a": "string"}, ["123456789012345678", "1.5"], {},
    ),
    "leading zeros": (b"a\n007\n1\n", {"a": "string"}, ["007", "1"], {}),
    "more digits than a double has": (b"a\n0.12345678901234567890\n", {"a": "string"}, ["0.12345678901234567890"], {}),
    "as many digits as numpy prints": (
        b"5.118216247002567165e-01 1.000000000000000000e+00\n9.504636963259353033e-01 -2.500000000000000000e-03\n",
        {"column_1": "double", "column_2": "double"}, [1.0, -0.0025],
        {"notes": ["no header: the first line holds values"]},
    ),
    "digits that are not those of a double": (
        b"a\n0.10000000000000001\n0.99999999999999985\n", {"a": "string"}, None, {},
    ),
    "17 digits that a double has": (b"a\n0.30000000000000004\n1\n", {"a": "double"}, [0.30000000000000004, 1.0], {}),
    "a last line without an end": (b"a,b\n1,2\n2,2", INTS, [2, 2], {"torn_last_line": True}),
    "two files in one, each with a byte order mark": (
        b"\xef\xbb\xbfa,b\n1,2\n" * 2, INTS, [2, 2], {"headers_skipped": 1},
    ),
    "NULs before the header": (
        b"\0" * 300 + b"a,b\n1,2\n", INTS, [2], {"notes": ["NUL bytes at the beginning of the file skipped"]},
    ),
    "settings, an empty line, and the names": (
        b"Serial,12\nInterval,10,s\n\nDate,Time,Temp\n" + b"2026-03-01,10:00:00,21.5\n" * 3,
        {"Date": "date32[day]", "Time": "string", "Temp": "double"}, [21.5] * 3,
        {"notes": ["2 lines before the header skipped"]},
    ),
    "two byte order marks": (b"\xef\xbb\xbf" * 2 + b"a,b\n1,2\n", INTS, [2], {}),
    "a comma at the end of rows": (b"a,b\n1,2,\n3,4,\n", INTS, [2, 4], {}),
    "rows of tabs alone, beside a comment": (
        b"a\tb\n# x\n\t\n1\t2\n", INTS, [None, 2], {},
    ),
    "a line feed in a quoted cell after a blank": (
        b'a ; b\n1 ; "x\ny"\n2 ; a"b\n' + b"# x\n" * 30 + b'3 ; "z"\n', {"a": "int64", "b": "string"},
        ["x\ny", 'a"b', "z"], {},
    ),
    "tabs": (b"a\tb\n1\t2\n", INTS, [2], {}),
    "bars": (b"a|b\n1|2\n", INTS, [2], {}),
    "bars with blanks": (b"a | b\n1 | 2\n", INTS, [2], {}),
    "LF and CR": (b"a,b\n\r1,2\n\r3,4\n\r", INTS, [2, 4], {}),
    "a line of blanks and CR": (b"a,b\n\r\n1,2\n\r\n3,4\n", INTS, [2, 4], {}),
    "one padded number": (b"t,v\n1, 2.5\n2,3.5\n", {"t": "int64", "v": "double"}, [2.5, 3.5], {}),
    "a padded number after hundreds that are as wide": (
        b"t,v\n" + b"1,10.5\n" * 300 + b"1, 9.5\n", {"t": "int64", "v": "double"}, [10.5] * 300 + [9.5], {},
    ),
    "padded values of other types": (
        b"id,at,ok\n 10699247336865531002, 2026-01-01 10:00, true\n1,2026-01-01 10:01,false\n",
        {"id": "uint64", "at": "timestamp[us]", "ok": "bool"}, [True, False], {},
    ),
    "a padded text": (b"t,v\n1, x\n2,y\n", {"t": "int64", "v": "string"}, [" x", "y"], {}),
    "a cell of blanks in a column of numbers": (
        b"t,v\n1,  \n2,3.5\n", {"t": "int64", "v": "double"}, [None, 3.5], {},
    ),
    "a decimal comma after hundreds of whole numbers": (
        b"t;v\n" + b"1;20\n" * 300 + b'2;"20,5"\n', {"t": "int64", "v": "double"}, [20.0] * 300 + [20.5], {},
    ),
    "decimal commas in numbers with an exponent": (
        b"t|v\n1|1,5e-04\n2|2,5e-04\n", {"t": "int64", "v": "double"}, [1.5e-4, 2.5e-4], {},
    ),
    "no header, dates and decimal commas": (
        b"01.02.2026 10:00;21,5\n01.02.2026 10:01;21,6\n", {"column_1": "string", "column_2": "double"}, [21.5, 21.6],
        NO_HEADER,
    ),
    "no header, bars and decimal commas": (
        b"10:00|10:00|55,21\n10:01|10:01|-3,84\n",
        {"column_1": "string", "column_2": "string", "column_3": "double"}, [55.21, -3.84], NO_HEADER,
    ),
    "no header, a date and a text": (
        b"2026-02-01,37,a\n2026-02-02,38,b\n", {"column_1": "date32[day]", "column_2": "int64", "column_3": "string"},
        ["a", "b"], NO_HEADER,
    ),
    "no header, a time of day and an empty cell": (
        b"10:00:00,,7\n10:01:00,5,8\n", {"column_1": "string", "column_2": "int64", "column_3": "int64"}, [7, 8],
        NO_HEADER,
    ),
    "no header, a truth value": (
        b"390,true,idle\n391,false,run\n", {"column_1": "int64", "column_2": "bool", "column_3": "string"},
        ["idle", "run"], NO_HEADER,
    ),
    "dates as names above numbers": (
        b"name,2026-01-01,2026-02-01\na,1,2\nb,3,4\n", {"name": "string", "2026-01-01": "int64", "2026-02-01": "int64"},
        [2, 4], {},
    ),
    "no header, a row of empty cells": (
        b",\n,\n7.5,2\n", {"column_1": "double", "column_2": "int64"}, [None, None, 2], NO_HEADER,
    ),
    "a row of empty cells above the names": (
        b";;\nt;v;n\n1;2,5;3\n2;3,5;4\n", {"t": "int64", "v": "double", "n": "int64"}, [3, 4],
        {"notes": ["1 line before the header skipped"]},
    ),
    "tabs, padded numbers and a row of empty cells": (
        b"a\tb\n 1\t 2\n10\t20\n\t\n\n 3\t 4\n", INTS, [2, 20, None, 4], {},
    ),
    "tabs, padded numbers and empty cells": (
        b"a\tb\tc\n\t 5\t\n10\t\t 7\n\t  \t12\n", {"a": "int64", "b": "int64", "c": "int64"}, [None, 7, 12], {},
    ),
    "a title of two words above two columns with tabs": (
        b"Logger 5\nT2\tid\n0\t2026-02-01\n1\t2026-02-02\n", {"T2": "int64", "id": "date32[day]"}, None,
        {"notes": ["1 line before the header skipped"]},
    ),
    "columns of blanks, decimal commas and text": (
        b"v t n\n51,22 10:00 open\n-0,5 10:01 idle\n", {"v": "double", "t": "string", "n": "string"},
        ["open", "idle"], {},
    ),
    "columns of blanks": (b"a   b\n 1  2\n10 20\n", INTS, [2, 20], {}),
    "CR": (b"a,b\r1,2\r", INTS, [2], {}),
    "CRLF": (b"a,b\r\n1,2\r\n", INTS, [2], {}),
    "single quotes": (b"'a','b'\n'x, y','2'\n'z','3'\n", {"a": "string", "b": "int64"}, [2, 3], {}),
    "empty quotes in a column of numbers": (b'a,b\n1,""\n2,3\n', INTS, [None, 3], {}),
    "one column of text with its name": (b"c\na\nc\n", {"c": "string"}, ["a", "c"], {}),
    "prose with commas": (b"message\nhello, world\nbye\n", {"message": "string"}, ["hello, world", "bye"], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CSV)
def test_csv(name: str) -> None:
    data, types, last, told = CSV[name]
    seen, table, summary = whole(data)
    assert (seen, summary) == (types, told)
    if last is not None:
        assert shown(table.column(table.num_columns - 1).to_pylist()) == last


def test_a_late_type_costs_no_row_whatever_columns_are_asked_for() -> None:
    for columns in (None, ("t",), ("temp",), ("temp", "t")):
        assert whole(LONG, columns=columns)[1].num_rows == 5000
    temperatures = whole(LONG)[1]["temp"].to_pylist()
    assert temperatures == [20.0] * 3000 + [20.5] * 400 + [21.0] * 1600


def test_words_for_no_value_are_nan_infinity_and_null() -> None:
    words = [NAN, math.inf, -math.inf, None, NAN, NAN, None, None, None, 1.0]
    assert shown(whole(SPELLED)[1]["t"].to_pylist()) == words
    types, table, told = whole(ODD, "jsonl")
    assert (types, shown(table["t"].to_pylist()), told) == ({"t": "double"}, ODD_VALUES, {})
    # In a column of text they are text.
    assert whole(b"a\nN/A\nx\n")[1]["a"].to_pylist() == ["N/A", "x"]


def test_late_keys_of_json_are_columns() -> None:
    types, table, told = whole(LATE, "jsonl")
    assert (types, told) == ({"t": "int64", "temp": "double", "co2": "int64"}, {})
    assert table["co2"].to_pylist() == [None] * 1500 + [400] * 1500


JSONL = {
    "a number and a text": (b'{"a":1}\n{"a":"x"}\n{"a":1.50}\n', "string", ["1", "x", "1.50"]),
    "a long number beside a fraction": (
        b'{"a":123456789012345678}\n{"a":1.5}\n',
        "string",
        ["123456789012345678", "1.5"],
    ),
    "a number beyond int64": (b'{"a":10699247336865531002}\n', "uint64", [10699247336865531002]),
    "a list and an object": (b'{"a":[1, 2]}\n{"a":{"b":1}}\n', "string", ["[1, 2]", '{"b":1}']),
    "lists": (b'{"a":[1,2.5]}\n{"a":[]}\n', "list<item: double>", [[1.0, 2.5], []]),
    "dates and times": (b'{"a":"2024-01-01T00:00:00"}\n{"a":"2024-01-02"}\n', "timestamp[us]", None),
    "nothing": (b'{"a":null}\n', "null", [None]),
    "CR": (b'{"a":1}\r{"a":2}\r', "int64", [1, 2]),
    "LF and CR": (b'{"a":1}\n\r{"a":2}\n\r', "int64", [1, 2]),
    "a comma after each object": (b'{"a":1},\n{"a":2},\n' * 20, "int64", [1, 2] * 20),
    "two files in one, each with a byte order mark": (b'\xef\xbb\xbf{"a":1}\n' * 2, "int64", [1, 1]),
    "a word for infinity beside whole numbers": (b'{"a":1}\n{"a":"inf"}\n', "double", [1.0, math.inf]),
    "a word for infinity beside a truth value": (b'{"a":true}\n{"a":"inf"}\n', "string", ["true", "inf"]),
    "a word for no number beside a date": (b'{"a":"2024-01-01"}\n{"a":"nan"}\n', "string", ["2024-01-01", "nan"]),
    "words for numbers alone": (b'{"a":"inf"}\n{"a":"-inf"}\n', "double", [math.inf, -math.inf]),
    "an array": (b'[{"a":1},{"a":2}]', "int64", [1, 2]),
    "an array over several lines": (b'[\n  {"a": 1},\r\n  {\n    "a": 2\n  }\n]\n', "int64", [1, 2]),
    "an array of texts with marks in them": (b'[{"a":"x,]}\\""}, {"a":"[{\\\\"}]', "string", ['x,]}"', "[{\\"]),
    "an array of nested objects": (b'[{"a":[{"b":1},{"b":2}]},{"a":[]}]', "list<item: struct<b: int64>>", None),
    "two arrays": (b'[{"a":1}]\n[{"a":2},\n{"a":3}]\n', "int64", [1, 2, 3]),
}


@pytest.mark.parametrize("name", JSONL)
def test_jsonl(name: str) -> None:
    data, type_, values = JSONL[name]
    types, table, told = whole(data, "jsonl")
    assert (types, told) == ({"a": type_}, {})
    assert values is None or table["a"].to_pylist() == values


def test_an_array_that_was_cut_off_keeps_its_whole_objects() -> None:
    data = b'[{"a":1},\n{"a":2},\n{"a":"thr'
    types, table, told = whole(data, "jsonl")
    assert (types, table["a"].to_pylist()) == ({"a": "int64"}, [1, 2])
    assert (told["rejected"], told["rejected_rows"][0]["offset"], told["torn_last_line"]) == (1, 18, True)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\r"])
def test_line_ends_are_found_however_they_arrive(end: str) -> None:
    data = end.join(["a,b", "1,x", "2,y", ""]).encode()
    for size in range(1, len(data)):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        file = WholeFile(Layout("csv"), lambda: iter(pieces))  # noqa: B023
        assert [row for batch in file.batches() for row in batch.to_pylist()] == [
            {"a": 1, "b": "x"},
            {"a": 2, "b": "y"},
        ]


def test_an_array_is_read_alike_however_it_arrives() -> None:
    data = b' [{"a":"x,y","b":1},{"a":"z\\"]","b":2}, {"a":"[\\\\","b":3}]'
    for size in range(1, len(data)):
        reader = open_reader(Layout("jsonl", schema={"a": "string", "b": "int64"}))
        batches = [each for at in range(0, len(data), size) for each in reader.feed(data[at : at + size])]
        rows = [row for batch in batches + reader.finish() for row in batch.to_pylist()]
        assert rows == [{"a": "x,y", "b": 1}, {"a": 'z"]', "b": 2}, {"a": "[\\", "b": 3}]


OPTIONS = {
    "header none": (b"a,b\nc,d\n", {"header": "none"}, {"column_1": ["a", "c"], "column_2": ["b", "d"]}),
    "header 3": (b"x\ny\na,b\n1,2\n", {"header": 3}, {"a": [1], "b": [2]}),
    "delimiter": (b"a,b;c\n1,2;3\n", {"delimiter": ";"}, {"a,b": [1.2], "c": [3]}),
    "decimal point": (b"a;b\n1,2;3\n", {"decimal": "."}, {"a": ["1,2"], "b": [3]}),
    "skip_rows": (b"a,b\nc,d\n1,2\n", {"skip_rows": 1}, {"c": [1], "d": [2]}),
    "comment": (b"%x\na,b\n1,2\n%y\n3,4\n", {"comment": "%"}, {"a": [1, 3], "b": [2, 4]}),
    "encoding": ("a\nü\n".encode("cp850"), {"encoding": "cp850"}, {"a": ["ü"]}),
    "null_values": (b"a,b\n-999,x\n1,?\n", {"null_values": ("-999", "?")}, {"a": [None, 1], "b": ["x", None]}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_request_names_is_not_guessed(name: str) -> None:
    data, options, columns = OPTIONS[name]
    assert whole(data, **options)[1].to_pydict() == columns


SCHEMAS = {
    "by name": (b"b;a\n1,5;2\n", {}, {"a": 2.0, "b": 1.5}),
    "a decimal comma at the end": (b"b;a\n1,5;2,\n", {}, {"a": 2.0, "b": 1.5}),
    "by position": (b"1.5,2\n", {}, {"a": 1.5, "b": 2.0}),
    "lines before": (b"# x\nlogger\na,b\n1,2\n", {}, {"a": 1.0, "b": 2.0}),
    "no header": (b"1,2\n", {"header": "none"}, {"a": 1.0, "b": 2.0}),
    "blanks": (b"a  b\n1  2\n", {}, {"a": 1.0, "b": 2.0}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_finds_its_columns(name: str) -> None:
    data, options, row = SCHEMAS[name]
    reader = open_reader(Layout("csv", schema={"a": "double", "b": "double"}, text=TextOptions(**options)))
    batches = [batch for index in range(len(data)) for batch in reader.feed(data[index : index + 1])]
    assert [row for batch in batches + reader.finish() for row in batch.to_pylist()] == [row]


VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "text": st.text("abcxyzé ,;'\"\t|#0123456789", min_size=1, max_size=8).map(lambda text: f"t{text}e"),
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=4))
    rows = draw(st.integers(2, 40))
    columns = [st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows) for kind in kinds]
    return {f"name{place}": draw(column) for place, column in enumerate(columns)}


def cell(value: Any, delimiter: str, decimal: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    text = repr(value)
    return text.replace(".", decimal) if isinstance(value, float) else text


def same(seen: Any, value: Any) -> bool:
    """Whether a value is the same, be it a number of another type or its exact text."""
    if isinstance(seen, str) and not isinstance(value, str):
        return type(value)(seen.replace(",", ".")) == value if not isinstance(value, bool) else seen == str(value)
    return bool(seen == value)


@settings(max_examples=30, deadline=None)
@given(
    tables(),
    st.sampled_from([(",", "."), (";", "."), (";", ","), ("\t", "."), ("|", ",")]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 60),
)
def test_every_value_of_any_dialect_comes_back(
    table: dict[str, list[Any]], signs: tuple[str, str], end: str, piece: int
) -> None:
    delimiter, decimal = signs
    rows = list(zip(*table.values(), strict=True))
    lines = [table, *([cell(value, delimiter, decimal) for value in row] for row in rows)]
    data = "".join(delimiter.join(line) + end for line in lines).encode()
    options = {"delimiter": delimiter, "decimal": decimal, "header": 1}
    types, seen, told = whole(data, **options)
    assert (list(types), told) == (list(table), {})
    for name, values in table.items():
        assert all(map(same, seen[name].to_pylist(), values)), (types[name], seen[name].to_pylist())
        alone = whole(data, columns=(name,), **options)[1]
        assert alone[name].equals(seen[name])
    layout = Layout("csv", text=TextOptions(**options))
    pieces = WholeFile(layout, lambda: (data[start : start + piece] for start in range(0, len(data), piece)))
    assert pa.Table.from_batches(list(pieces.batches()), pieces.schema).equals(seen)


# Cells as loggers write them, without their decimal sign, and their values.
MEASURED = {
    "int": st.integers(-5, 3000).map(lambda number: (str(number), number)),
    "float": st.integers(-2000, 9999).map(lambda number: (f"{number / 100:.2f}", number / 100)),
    "small": st.integers(1, 9999).map(lambda number: (f"{number}.0e-07", float(f"{number}.0e-07"))),
    "bool": st.booleans().map(lambda value: (str(value).lower(), value)),
    "time": st.integers(0, 59).map(lambda minute: (f"10:{minute:02}:00", f"10:{minute:02}:00")),
    "word": st.sampled_from(["ok", "open", "sensor error", "A1", "Größe", "RUN"]).map(lambda word: (word, word)),
}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_how_a_file_of_a_logger_is_written_is_found(data: st.DataObject) -> None:
    """With names, at least one column of fractions, and no blanks as delimiter there is no doubt."""
    kinds = ["float", *data.draw(st.lists(st.sampled_from(sorted(MEASURED)), min_size=1, max_size=5))]
    kinds = data.draw(st.permutations(kinds))
    names = ["Zeit", "Temp (C)", "co2", "V_bat", "Wind m/s", "T2"][: len(kinds)]
    rows = data.draw(st.lists(st.tuples(*(MEASURED[kind] for kind in kinds)), min_size=3, max_size=30))
    delimiter, decimal = data.draw(
        st.sampled_from([*zip(",;\t|", "....", strict=True), *zip(";\t|", ",,,", strict=True)])
    )
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r", "\n\r"]))
    width, quote = data.draw(st.sampled_from([0, 0, 7])), data.draw(st.sampled_from(["", '"']))

    def text(kind: str, cell: str) -> str:
        if kind == "word":
            return quote + cell + quote
        return cell.replace(".", decimal).rjust(width if kind in ("int", "float") else 0)

    title = data.draw(st.sampled_from([(), ("# logger 5",), ("Logger 5",)]))
    cells = ([text(kind, cell) for kind, (cell, _) in zip(kinds, row, strict=True)] for row in rows)
    lines = [*title, *(delimiter.join(row) for row in ([quote + name + quote for name in names], *cells))]
    _, table, told = whole("".join(line + end for line in lines).encode())
    assert (table.schema.names, told.get("rejected", 0)) == (names, 0)
    assert [list(row.values()) for row in table.to_pylist()] == [[value for _, value in row] for row in rows]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "N/A", "2026-01-02", "2026-01-02T03:04:05Z", "nan", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)


def files_of(format_: str, rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    if format_ == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    lines = [",".join(columns), *(",".join(cell(row.get(name), ",", ".") for name in columns) for row in rows)]
    return "".join(line + "\n" for line in lines).encode()


@given(st.data(), st.sampled_from(["csv", "jsonl"]))
def test_files_that_are_read_together_have_the_types_of_one_file(data: st.DataObject, format_: str) -> None:
    """As long as their columns have the same order."""
    value = JSON_VALUES if format_ == "jsonl" else st.none() | st.one_of(*VALUES.values())
    row = st.fixed_dictionaries({"a": value, "b": value})
    rows = data.draw(st.lists(row, min_size=2, max_size=8))
    at = data.draw(st.integers(1, len(rows) - 1))
    text = TextOptions(delimiter=",", decimal=".", header=1) if format_ == "csv" else TextOptions()

    def read(rows: list[dict[str, Any]], kinds: dict[str, Shape] | None = None) -> tuple[Any, pa.Table]:
        content = files_of(format_, rows, ["a", "b"])
        file = WholeFile(Layout(format_, text=text, kinds=kinds), lambda: iter([content]))
        return file.kinds, pa.Table.from_batches(list(file.batches()), file.schema)

    _, together = read(rows)
    kinds: dict[str, Shape] = {}
    for part in (rows[:at], rows[at:]):
        sent = {name: shape.as_json() for name, shape in read(part)[0].items()}
        kinds = joined(kinds, shapes_from_json(json.loads(json.dumps(sent))))
    parts = [read(part, kinds)[1] for part in (rows[:at], rows[at:])]
    assert [part.schema for part in parts] == [together.schema] * 2
    assert repr(pa.concat_tables(parts).to_pylist()) == repr(together.to_pylist())


WIDER = {
    "1.5": ("double", 1.0, 1.5),
    "": ("int64", 1, None),
    "9007199254740993": ("int64", 1, 2**53 + 1),
    "18446744073709551615": ("uint64", 1, 2**64 - 1),
    "N/A": ("int64", 1, None),
    "x": ("string", "1", "x"),
    "007": ("string", "1", "007"),
    "2026-01-01": ("string", "1", "2026-01-01"),
}


@pytest.mark.parametrize(
    ("rows", "padding", "last"),
    [*((100, 0, last) for last in WIDER), (HELD_BYTES // 1000, 1000, "1.5"), (HELD_BYTES // 1000, 1000, "x")],
)
def test_the_last_row_of_a_file_of_any_size_can_change_a_type(rows: int, padding: int, last: str) -> None:
    """Rows are held from the first pass only if they are few."""
    type_, first_value, last_value = WIDER[last]
    row = b"1,2," + b"x" * padding + b"\n"
    types, table, _ = whole(b"a,b,c\n" + row * rows + last.encode() + b",0.1,\n")
    assert types == {"a": type_, "b": "double", "c": "string" if padding else "null"}
    assert table.column("a").unique().to_pylist() == [first_value, last_value]
    assert table.num_rows == rows + 1
    assert table.column("b").unique().to_pylist() == [2.0, 0.1]


JSON_TEXTS = [
    ["1", "-2", "null"], ["0.5", "-0.25", "1e3"], ["9007199254740993", "-9007199254740992", "9223372036854775808"],
    ["-0", "0", "-0.0"], ["0.1234567890123456", "0.12345678901234567", "12345678901234567e-5", "1.7e-5", "1e-400"],
    ["true", "false"], ['"x"', '"N/A"', '""'], ['"2026-01-31"', '"2026-01-31T23:59:59Z"', '"2026-01-31 23:59:59.5"'],
    ["[]", "[1,2]", "[0.5,null]"], ["{}", '{"a":1}', '{"a":0.5,"b":"x"}'], ["NaN", "nan", "-inf"], ['"-0"', '"7"'],
]  # fmt: skip


def test_json_lines_have_the_same_types_and_values_whichever_parser_reads_them() -> None:
    """Rows with an escaped character are all parsed in Python."""
    chance = random.Random(12)
    for _ in range(60):
        pools = chance.choices(JSON_TEXTS, k=chance.choice((1, 1, 2)))
        first, others = pools[0], sum(pools, [])
        rows = [chance.choice(first) for _ in range(chance.choice((10, 600)))]
        rows += [chance.choice(others) for _ in range(chance.choice((0, 3, 600)))]
        lines = [f'"v":{row}' for row in rows]
        if chance.random() < 0.3:
            lines[-1] += ',"late":1'
        quick, table, told = whole("".join(f"{{{line}}}\n" for line in lines).encode(), "jsonl")
        slow, expected, expected_told = whole(
            "".join(f'{{{line},"u":"\\u0041"}}\n' for line in lines).encode(), "jsonl"
        )
        assert {**quick, "u": "string"} == {**slow}, rows
        assert {name: repr(table[name].to_pylist()) for name in quick} == {
            name: repr(expected[name].to_pylist()) for name in quick
        }, rows
        assert told.get("rejected") == expected_told.get("rejected")


def test_words_for_no_value_stay_if_a_later_block_holds_text() -> None:
    """A column of such words alone has no type yet."""
    types, table, _ = whole(b"a,b\n" + b"N/A,1\n" * (WHOLE_BLOCK_BYTES // 6) + b"x,2\n")
    assert types == {"a": "string", "b": "int64"}
    assert table["a"].unique().to_pylist() == ["N/A", "x"]


NESTED = {
    "a whole number that a double does not hold": (b"[9007199254740993]", b"[0.5]", ["[9007199254740993]", "[0.5]"]),
    "a number below those of uint64": (b"[-5]", b"[18446744073709551615]", ["[-5]", "[18446744073709551615]"]),
    "a field below those of uint64": (
        b'{"x":-5}', b'{"x":18446744073709551615}', ['{"x":-5}', '{"x":18446744073709551615}'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
def test_numbers_in_lists_and_objects_are_exact_whichever_parser_reads_them(name: str) -> None:
    second, last, texts = NESTED[name]
    first = b'{"x":1}' if second.startswith(b"{") else b"[1]"
    rows = [b'{"a":%s}\n' % value for value in [first] * 20 + [second] * 40 + [last]]
    _, table, told = whole(b"".join(rows), "jsonl")
    assert (table["a"].type, told) == (pa.string(), {})
    assert table["a"].to_pylist() == [first.decode()] * 20 + texts[:1] * 40 + texts[1:]


@pytest.mark.parametrize("name", CSV)
def test_with_on_error_fail_the_first_thing_to_tell_is_an_error(name: str) -> None:
    """With `lossless`, only rows and values that would be lost are."""
    data, _, _, told = CSV[name]
    for layout, refused in (
        (Layout("csv", on_error="lossless"), "rejected" in told),
        (Layout("csv", on_error="fail"), told),
    ):
        if refused:
            with pytest.raises(DataError):
                WholeFile(layout, lambda: iter([data]))
        else:
            assert WholeFile(layout, lambda: iter([data])).summary.is_empty == (not told)


def test_a_quoted_empty_cell_beyond_the_header_is_no_value() -> None:
    data = b'a,b\n1,2\n3,4,""\n5,6\n'
    assert whole(data)[1].to_pydict() == {"a": [1, 3, 5], "b": [2, 4, 6]}


@pytest.mark.parametrize("rows", [3, 3000])
def test_json_strings_that_a_request_calls_null_are_null_in_every_row(rows: int) -> None:
    _, table, _ = whole(b'{"a":"x","b":1}\n{"a":"?","b":2}\n' * rows, "jsonl", null_values=("?",))
    assert table.column("a").to_pylist() == ["x", None] * rows


def test_a_file_without_the_columns_that_are_asked_for_has_rows_of_nulls() -> None:
    """Another file that is read with it has them."""
    layout = Layout("csv", columns=("b",), kinds={"b": Shape(kinds=Kind.WHOLE)})
    file = WholeFile(layout, lambda: iter([b"a\n1\n2\n"]))
    assert pa.Table.from_batches(list(file.batches()), file.schema).to_pydict() == {"b": [None, None]}
