"""What a file on a board may hold: CSV, JSON lines, packed records. Bytes nobody vouches for, whose schema is guessed."""

from __future__ import annotations

from fastflight.errors import DataError
from fastflight.tables.rows import MAX_ROW_BYTES
from fastflight.tables.schemas import MAX_COLUMNS
from fastflight.tables.shapes import MAX_STRUCT_FIELDS
from fastflight.tables.text import SAMPLE_BYTES

from .case import Case


def numbers(*values: object) -> tuple[str, list[object], list[str]]:
    """One column `n` of int64, and no row rejected."""
    return "n: int64", list(values), []


def texts(*values: object) -> tuple[str, list[object], list[str]]:
    return "n: string", list(values), []


HEADER = "the first row is too long or not closed"
LONG = b"x" * (MAX_ROW_BYTES + 1)
BOM = b"\xef\xbb\xbf"

# The bytes; the columns, the first column's values and the reasons of what was rejected.
CSV = [
    Case("nothing", b"", outcome=("", [], [])),
    Case("a line feed", b"\n", outcome=("", [], [])),
    Case("a header alone", b"n\n", outcome=("n: null", [], [])),
    Case("a header without its line feed", b"n", outcome=("n: null", [], [])),
    Case("NUL alone", b"\0", outcome=("", [], [])),
    Case("a NUL in a cell", b"n\na\0b\n", outcome=("n: null", [], ["1 NUL byte in the row"])),
    Case("a NUL in a number", b"n\n1\n2\0\n", outcome=("n: int64", [1], ["1 NUL byte in the row"])),
    Case("a byte order mark", BOM + b"n\n1\n", outcome=numbers(1)),
    Case("two byte order marks", BOM + BOM + b"n\n1\n", outcome=numbers(1)),
    Case("a byte order mark before a row", b"n\n" + BOM + b"1\n", outcome=texts("\ufeff1")),
    Case("a byte order mark that breaks off", BOM[:2], DataError, "the header is not UTF-8"),
    Case("UTF-16", "n\n1\n".encode("utf-16"), outcome=numbers(1)),
    Case("UTF-16 without its mark", "n\n1\n".encode("utf-16-le"), outcome=numbers(1)),
    Case("a header that is not UTF-8", b"\xff\n1\n", DataError, "the header is not UTF-8"),
    Case("a row that is not UTF-8", b"n\n1\n\xff\n2\n", outcome=("n: int64", [1, 2], ["byte 0 of the row, 0xff, is not UTF-8"])),
    Case("a surrogate as CESU-8", b"n\n\xed\xa0\x80\n", outcome=("n: null", [], ["byte 0 of the row, 0xed, is not UTF-8"])),
    Case("UTF-8 that breaks off at the end", b"n\na\n\xc3", outcome=("n: string", ["a"], ["byte 0 of the row, 0xc3, is not UTF-8"])),
    Case("a header without end", LONG, DataError, HEADER),
    Case("a header of an open quote", b'"n\n1\n', DataError, HEADER),
    Case("two columns of one name", b"n,n\n1,2\n", outcome=("n: int64, n_2: int64", [1], [])),
    Case("two columns without name", b",\n1,2\n", outcome=("column_1: int64, column_2: int64", [None, 1], [])),
    Case("a column too many", b",".join(b"c%d" % i for i in range(MAX_COLUMNS + 1)) + b"\n", DataError, f"{MAX_COLUMNS + 1} columns"),
    Case("a million columns", b"," * 1_000_000 + b"\n", DataError, "1000001 columns"),
    Case("a cell too many", b"n,m\n1,2,3\n4,5\n", outcome=("n: int64, m: int64", [4], ["the row has 3 cells, the header has 2"])),
    Case("a cell too few", b"n,m\n1\n4,5\n", outcome=("n: int64, m: int64", [4], ["the row has 1 cells, the header has 2"])),
    Case("a row without end", b"n\n1\n" + LONG + b"\n2\n", outcome=("n: int64", [1, 2], [f"the row is longer than {MAX_ROW_BYTES} bytes"])),
    Case("a row without end at the end", b"n\n1\n" + LONG, outcome=("n: int64", [1], [f"the row is longer than {MAX_ROW_BYTES} bytes"])),
    Case("a quote that is never closed", b'n\n1\n"2\n3\n', outcome=("n: int64", [1, 3], ["a quote is not closed before the file ends"])),
    Case("a quote that closes too late", b'n\n"' + LONG + b'"\n2\n', outcome=("n: int64", [2], [f"the row is longer than {MAX_ROW_BYTES} bytes"])),
    Case("an open quote over many lines", b'n\n"' + b"1\n" * 600_000, outcome=("n: int64", [1] * 599_999, [f"a quote is not closed within {MAX_ROW_BYTES} bytes"])),
    Case("text after a quote", b'n\n"a"b\nc\n', outcome=texts("ab", "c")),
    Case("a quote inside of a cell", b'n\na"b\nc\n', outcome=texts('a"b', "c")),
    Case("quotes alone", b'n\n""\n""""\n', outcome=texts("", '"')),
    Case("carriage returns alone", b"n\r1\r2\r", outcome=numbers(1, 2)),
    Case("a carriage return in a row", b"n\n1\r2\n3\n", outcome=("n: int64", [3], ["a carriage return outside of quotes"])),
    Case("mixed ends of lines", b"n\r\n1\n2\r\n3", outcome=numbers(1, 2, 3)),
    Case("a form feed and a vertical tab end no line", b"n\n1\x0b2\x0c3\n", outcome=texts("1\x0b2\x0c3")),
    Case("a line separator ends no line", "n\n1\u20282\u00853\n".encode(), outcome=texts("1\u20282\u00853")),
    Case("a number of thousands of digits", b"n\n" + b"9" * 5000 + b"\n", outcome=texts("9" * 5000)),
    Case("a number beyond 64 bits", b"n\n9223372036854775808\n", outcome=("n: uint64", [2**63], [])),
    Case("the least number of 64 bits", b"n\n-9223372036854775808\n", outcome=numbers(-(2**63))),
    Case("a number beyond a double", b"n\n1e999\n1\n", outcome=texts("1e999", "1")),
    Case("an exponent without end", b"n\n1e99999\n", outcome=texts("1e99999")),
    Case("hexadecimal", b"n\n0x10\n", outcome=texts("0x10")),
    Case("leading zeros", b"n\n007\n", outcome=texts("007")),
    Case("underscores between digits", b"n\n1_000\n", outcome=texts("1_000")),
    Case("digits of another script", "n\n\u0661\u0662\n".encode(), outcome=texts("\u0661\u0662")),
    Case("a fraction slash", b"n\n1/2\n", outcome=texts("1/2")),
    Case("the 30th of February", b"n\n2026-02-30\n", outcome=texts("2026-02-30")),
    Case("the year 0", b"n\n0000-01-01\n", outcome=texts("0000-01-01")),
    Case("the 25th hour", b"n\n2026-01-01T25:00:00Z\n", outcome=texts("2026-01-01T25:00:00Z")),
    Case("nanoseconds that no 64 bits hold", b"n\n9999-01-01T00:00:00.123456789Z\n", outcome=texts("9999-01-01T00:00:00.123456789Z")),
    Case("a zone of a hundred hours", b"n\n2026-01-01T00:00:00+99:00\n", outcome=texts("2026-01-01T00:00:00+99:00")),
    Case("a formula, which is text here", b"n\n=cmd|' /C calc'!A0\n", outcome=texts("=cmd|' /C calc'!A0")),
    Case("a script, which is text here", b"n\n<script>alert(1)</script>\n", outcome=texts("<script>alert(1)</script>")),
    Case("an escape sequence, which is text here", b"n\n\x1b[2J\n", outcome=texts("\x1b[2J")),
    Case("a type that holds in the sample alone", b"n\n" + b"1\n" * SAMPLE_BYTES + b"x\n", outcome=texts(*["1"] * SAMPLE_BYTES, "x")),
    Case("blank lines in one column are nulls", b"n\n1\n\n2\n", outcome=numbers(1, None, 2)),
    Case("blank lines in two columns are nothing", b"n,m\n1,2\n\n3,4\n", outcome=("n: int64, m: int64", [1, 3], [])),
    Case("commas alone", b"n,m\n,\n,\n", outcome=("n: null, m: null", [None, None], [])),
    Case("a header of semicolons in a comma's row", b"n;m\n1,2\n", outcome=("n;m: null", [], ["the row has 2 cells, the header has 1"])),
    Case("a row of a program's own error", b"n\n1\nTraceback (most recent call last):\n2\n", outcome=texts("1", "Traceback (most recent call last):", "2")),
]  # fmt: skip

NESTED = b'{"n": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"

JSONL = [
    Case("nothing", b"", outcome=("", [], [])),
    Case("line feeds alone", b"\n\n\n", outcome=("", [], [])),
    Case("NUL alone", b"\0\n", outcome=("", [], ["'\\x00' is not a JSON object"])),
    Case("a byte order mark", BOM + b'{"n": 1}\n', outcome=numbers(1)),
    Case("a byte order mark before a row", b'{"n": 1}\n' + BOM + b'{"n": 2}\n', outcome=("n: int64", [1, 2], [])),
    Case("UTF-16", '{"n": 1}\n'.encode("utf-16"), outcome=numbers(1)),
    Case("a row that is not UTF-8", b'{"n": 1}\n{"n": "\xff"}\n', outcome=("n: int64", [1], ["byte 7 of the row, 0xff, is not UTF-8"])),
    Case("half a surrogate pair", b'{"n": "\\ud800"}\n{"n": "a"}\n', outcome=("n: string", ["a"], ["half a surrogate pair in a string"])),
    Case("the halves in the wrong order", b'{"n": "\\udc00\\ud800"}\n{"n": "a"}\n', outcome=("n: string", ["a"], ["half a surrogate pair in a string"])),
    Case("a list", b'[1]\n{"n": 1}\n', outcome=("n: int64", [1], ["'[1]' is not a JSON object"])),
    Case("two objects on a line", b'{"n": 1}{"n": 2}\n{"n": 3}\n', outcome=("n: int64", [3], ["not JSON: Extra data at character 8 of '{\"n\": 1}{\"n\": 2}'"])),
    Case("an object on two lines", b'{"n":\n1}\n{"n": 2}\n', outcome=("n: int64", [2], ["'{\"n\":' is not a JSON object", "'1}' is not a JSON object"])),
    Case("a line that breaks off", b'{"n": 1}\n{"n": ', outcome=("n: int64", [1], ["'{\"n\":' is not a JSON object"])),
    Case("a comma too many", b'{"n": 1,}\n{"n": 2}\n', outcome=("n: int64", [2], None)),
    Case("single quotes", b"{'n': 1}\n", outcome=numbers(1)),
    Case("a key without quotes", b"{n: 1}\n", outcome=("", [], ["not JSON: Expecting property name enclosed in double quotes at character 1 of '{n: 1}'"])),
    Case("a control character in a string", b'{"n": "a\x01"}\n', outcome=("", [], None)),
    Case("a key that stands there twice", b'{"n": 1, "n": 2}\n{"n": 3}\n', outcome=("n: int64", [3], ["the key 'n' occurs twice"])),
    Case("a key without name", b'{"": 1}\n', outcome=(": int64", [1], [])),
    Case("a key of a megabyte", b'{"' + b"k" * MAX_ROW_BYTES + b'": 1}\n{"n": 1}\n', outcome=("n: int64", [1], [f"the row is longer than {MAX_ROW_BYTES} bytes"])),
    Case("a key with NUL", b'{"\\u0000": 1}\n', outcome=("\0: int64", [1], [])),
    Case("a column too many", b"{" + b",".join(b'"c%d":1' % i for i in range(MAX_COLUMNS + 1)) + b"}\n", DataError, f"more than {MAX_COLUMNS} different keys"),
    Case("a number of thousands of digits", b'{"n": ' + b"9" * 5000 + b'}\n{"n": 1}\n', outcome=texts("9" * 5000, "1")),
    Case("a number beyond 64 bits", b'{"n": 9223372036854775808}\n', outcome=("n: uint64", [2**63], [])),
    Case("a number beyond a double", b'{"n": 1e999}\n{"n": 1.5}\n', outcome=texts("1e999", "1.5")),
    Case("infinity, which JSON has not", b'{"n": Infinity}\n{"n": 1.5}\n', outcome=("n: double", [float("inf"), 1.5], [])),
    Case("a number with a plus", b'{"n": +1}\n{"n": 2}\n', outcome=("n: int64", [2], ["not JSON: Expecting value at character 6 of '{\"n\": +1}'"])),
    Case("leading zeros", b'{"n": 01}\n{"n": 2}\n', outcome=("n: int64", [2], ["not JSON: Expecting ',' delimiter at character 7 of '{\"n\": 01}'"])),
    Case("20,000 lists in each other, in a guessed column", NESTED, outcome=("", [], ["nested deeper than 200 levels"])),
    Case("20,000 lists in each other, in a column of numbers", b'{"n": 1}\n' + NESTED, outcome=("n: int64", [1], ["nested deeper than 200 levels"])),
    Case("20,000 open brackets before all else", b'{"n": ' + b"[" * 20_000 + b'\n{"n": 1}\n', outcome=("n: int64", [1], None)),
    Case("20,000 open brackets after a row", b'{"n": 1}\n{"n": ' + b"[" * 20_000 + b"\n", outcome=("n: int64", [1], None)),
    Case("garbage longer than the sample", b"boot\n" * SAMPLE_BYTES + b'{"n": 1}\n', outcome=("n: int64", [1], None)),
    Case("lists too deep for a column are text", b'{"n": ' + b"[" * 11 + b"]" * 11 + b"}\n", outcome=("n: string", ["[" * 11 + "]" * 11], [])),
    Case("an object of more keys than a struct has is text", b'{"n": {' + b",".join(b'"c%d":1' % i for i in range(MAX_STRUCT_FIELDS + 1)) + b"}}\n", outcome=("n: string", None, [])),
    Case("an empty object is text", b'{"n": {}}\n', outcome=texts("{}")),
    Case("values that do not agree are text", b'{"n": 1}\n{"n": [1]}\n{"n": {"a": 1}}\n', outcome=texts("1", "[1]", '{"a": 1}')),
    Case("a list whose items do not agree is text", b'{"n": [1, "a"]}\n', outcome=texts('[1, "a"]')),
    Case("a row without end", b'{"n": 1}\n{"n": "' + LONG + b'"}\n{"n": 2}\n', outcome=("n: int64", [1, 2], [f"the row is longer than {MAX_ROW_BYTES} bytes"])),
    Case("nulls alone", b'{"n": null}\n{"n": null}\n', outcome=("n: null", [None, None], [])),
    Case("empty objects", b"{}\n{}\n", outcome=("", [], [])),
    Case("carriage returns alone", b'{"n": 1}\r{"n": 2}\r', outcome=numbers(1, 2)),
    Case("truth in capitals", b'{"n": True}\n{"n": true}\n', outcome=("n: bool", [True, True], [])),
    Case("a type that holds in the sample alone", b'{"n": 1}\n' * SAMPLE_BYTES + b'{"n": "x"}\n', outcome=texts(*["1"] * SAMPLE_BYTES, "x")),
    Case("a key that was not in the sample", b'{"n": 1}\n' * SAMPLE_BYTES + b'{"m": 1}\n', outcome=("n: int64, m: int64", [1] * SAMPLE_BYTES + [None], [])),
]  # fmt: skip

# Records of a uint32, read as a second of a calendar, and of three bytes, read as text.
PACKED = [
    Case("nothing", b"", outcome=[]),
    Case("part of a record", b"\0\0\0", outcome=["the file ends after 3 of the 7 bytes of a record"]),
    Case("a record and a byte", b"\0\0\0\0abc\0", outcome=["the file ends after 1 of the 7 bytes of a record"]),
    Case("text that is not UTF-8", b"\0\0\0\0\xff\xff\xff", outcome=["column 's': b'\\xff\\xff\\xff' is not string"]),
    Case("a surrogate", b"\0\0\0\0\xed\xa0\x80", outcome=["column 's': b'\\xed\\xa0\\x80' is not string"]),
    Case("a number that the type does not hold", b"\xff\xff\xff\xffabc", outcome=["column 'n': 4294967295 is not int32"]),
    Case("only padding", b"\0" * 7, outcome=[]),
    Case("every record bad", b"\xff" * 70, outcome=["column 'n': 4294967295 is not int32"] * 10),
]  # fmt: skip

CASES = {"CSV": CSV, "JSON lines": JSONL, "packed records": PACKED}
