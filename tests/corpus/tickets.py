"""Tickets, commands, path descriptors, criteria and the bodies of actions: what a client may ask for."""

from __future__ import annotations

import json
from typing import Any

from fastflight.errors import DataError, DeviceError, FileMissing, RequestError, UnknownName, VersionConflict
from fastflight.server.listing import MAX_GLOB_BYTES
from fastflight.service.choices import MAX_FILES, MAX_REQUEST_BYTES
from fastflight.service.requests import (
    MAX_BATCH_ROWS,
    MAX_CODE_CHARACTERS,
    MAX_COLUMNS,
    MAX_GLOB_CHARACTERS,
    MAX_NULL_VALUES,
    MAX_OFFSET,
    MAX_PATH_CHARACTERS,
    MAX_SEQ,
    MAX_SKIPPED_ROWS,
)
from fastflight.tables.record import MAX_RECORD_BYTES
from fastflight.tables.schemas import MAX_TYPE_NAME_CHARACTERS

from .case import Case


def ask(type_: str = "device.file", /, **keys: Any) -> bytes:
    return json.dumps({"type": type_, **({"device": "demo"} if type_.startswith("device.") else {}), **keys}).encode()


def file(**keys: Any) -> bytes:
    return ask(path="/a.csv", **keys)


def packed(record: str, *columns: str) -> bytes:
    return ask(path="/a.csv", format="packed", record=record, columns=columns)


def nested_kinds(depth: int) -> dict[str, Any]:
    return {"items": nested_kinds(depth - 1)} if depth else {"kinds": 1}


DEEP = "[" * 20_000
LONG = "n" * 5000

# Bytes that are no request at all.
UNREADABLE = [
    Case("nothing", b"", RequestError, "not JSON"),
    Case("a space", b" ", RequestError, "not JSON"),
    Case("NUL", b"\0", RequestError, "not JSON"),
    Case("null", b"null", RequestError, "a JSON object is needed, not null"),
    Case("a list of requests", b"[" + file() + b"]", RequestError, "a JSON object is needed"),
    Case("a number", b"1", RequestError, "a JSON object is needed"),
    Case("text", b'"device.file"', RequestError, "a JSON object is needed"),
    Case("NaN", b"NaN", RequestError, "a JSON object is needed"),
    Case("two requests", file() + file(), RequestError, "not JSON"),
    Case("a request that breaks off", file()[:-1], RequestError, "not JSON"),
    Case("single quotes", b"{'type': 'mock'}", RequestError, "not JSON"),
    Case("a comma too many", b'{"type": "mock",}', RequestError, "not JSON"),
    Case("a comment", b'{"type": "mock"} // all', RequestError, "not JSON"),
    Case("a byte order mark", b"\xef\xbb\xbf" + file(), RequestError, "not JSON"),
    Case("UTF-16", file().decode().encode("utf-16"), RequestError, "not UTF-8"),
    Case("a byte that is not UTF-8", b'{"type": "\xff"}', RequestError, "not UTF-8"),
    Case("an overlong slash", b'{"type": "device.file", "path": "\xc0\xaf"}', RequestError, "not UTF-8"),
    Case("a surrogate as CESU-8", b'{"type": "\xed\xa0\x80"}', RequestError, "not UTF-8"),
    Case("a control character in a string", b'{"type": "mo\x01ck"}', RequestError, "not JSON"),
    Case("brackets without end", DEEP.encode(), RequestError, "nested too deep"),
    Case("a key with brackets without end", b'{"a": ' + DEEP.encode(), RequestError, "nested too deep"),
    Case("objects in each other without end", b'{"a":' * 20_000 + b"}" * 20_000, RequestError, "nested too deep"),
    Case("a number of thousands of digits", b'{"type": ' + b"9" * 5000 + b"}", RequestError, "numbers too long"),
    Case("a byte too many", b" " * (MAX_REQUEST_BYTES + 1), RequestError, f"{MAX_REQUEST_BYTES} are allowed"),
    Case("a pickle", b"\x80\x04\x95\x0a.", RequestError, "not UTF-8"),
    Case("protobuf", b"\x0a\x04mock", RequestError, "not JSON"),
    Case("no type", b"{}", RequestError, "type: no type is given"),
    Case("a type that is null", b'{"type": null}', RequestError, "type: no type is given"),
    Case("a type that is a list", b'{"type": ["mock"]}', RequestError, "type: no type is given"),
    Case("an unknown type", b'{"type": "device.fil"}', RequestError, "Did you mean 'device.file'?"),
    Case("a type in capitals", b'{"type": "MOCK"}', RequestError, "there is no request type 'MOCK'"),
    Case("a type with a space", b'{"type": "mock "}', RequestError, "there is no request type 'mock '"),
    Case("a type without end", json.dumps({"type": LONG}).encode(), RequestError, "there is no request type 'nnn"),
    Case("a class's path as a type", b'{"type": "fastflight.service.requests.Mock"}', RequestError, "no request type"),
    Case("half a character as a type", b'{"type": "\\ud800"}', RequestError, "there is no request type"),
    Case("a type given twice: the last counts", b'{"type": "mock", "type": "moc"}', RequestError, "'moc'"),
]

# Requests whose keys are not what they may be.
REFUSED = [
    Case("no device", b'{"type": "device.file", "path": "/"}', RequestError, "device: this key is needed"),
    Case("no path", ask(), RequestError, "path: this key is needed"),
    Case("an unknown key", file(colums=["n"]), RequestError, "Did you mean 'columns'?"),
    Case("a key without name", file(**{"": 1}), RequestError, "unknown key"),
    Case("a key without end", file(**{LONG: 1}), RequestError, "unknown key"),
    Case("a private name as a key", file(**{"__class__": 1}), RequestError, "__class__: unknown key"),
    Case("the model's own configuration as a key", file(model_config={}), RequestError, "unknown key"),
    Case("the Python name of schema", file(schema_={"n": "int8"}), RequestError, "unknown key"),
    Case("a key of half a character", file(**{"\ud800": 1}), RequestError, "unknown key"),
    Case("a device without name", file(device=""), RequestError, "device"),
    Case("a device that is a number", file(device=1), RequestError, "device: 1 is not allowed"),
    Case("a device without end", file(device="d" * 256), RequestError, "device"),
    Case("a device that is not there", file(device="dem"), UnknownName, "Did you mean 'demo'?"),
    Case("a device that leads up", file(device="../demo"), UnknownName, "no such device"),
    Case("a device of half a character", file(device="\ud800"), RequestError, "device"),
    Case("a device with NUL", file(device="demo\0"), UnknownName, "no such device"),
    Case("a path that is a list", ask(path=["/a.csv"]), RequestError, "path"),
    Case("no character of a path", ask(path=""), RequestError, "path"),
    Case("a path that is too long", ask(path="/" * (MAX_PATH_CHARACTERS + 1)), RequestError, "path"),
    Case("a path with NUL", ask(path="/a\0.csv"), RequestError, "the path holds the character"),
    Case("a path of half a character", ask(path="/\udfff"), RequestError, "path"),
    Case("an unknown format", file(format="cvs"), RequestError, "Did you mean 'csv'?"),
    Case("a format that is a number", file(format=1), RequestError, "format"),
    Case("an unknown mode", file(mode="fast"), RequestError, "mode"),
    Case("a mode of truth", file(mode=True), RequestError, "mode"),
    Case("no row in a batch", file(batch_rows=0), RequestError, "batch_rows: 0 is not allowed"),
    Case("fewer rows than none", file(batch_rows=-1), RequestError, "batch_rows"),
    Case("a row too many in a batch", file(batch_rows=MAX_BATCH_ROWS + 1), RequestError, "batch_rows"),
    Case("rows as text", file(batch_rows="10"), RequestError, "batch_rows"),
    Case("half a row", file(batch_rows=1.5), RequestError, "batch_rows"),
    Case("rows of truth", file(batch_rows=True), RequestError, "batch_rows"),
    Case("rows beyond 64 bits", file(batch_rows=2**64), RequestError, "batch_rows"),
    Case("infinitely many rows", file()[:-1] + b', "batch_rows": 1e999}', RequestError, "batch_rows"),
    Case("rows that are no number", file()[:-1] + b', "batch_rows": NaN}', RequestError, "batch_rows"),
    Case("a wait below nothing", file(flush_ms=-1), RequestError, "flush_ms"),
    Case("a wait of a day", file(flush_ms=86_400_000), RequestError, "flush_ms"),
    Case("an unknown way of errors", file(on_error="ignore"), RequestError, "on_error"),
    Case("an unknown way over the line", file(transfer="fast"), RequestError, "transfer"),
    Case("an offset below nothing", file(format="raw", offset=-1), RequestError, "offset"),
    Case("an offset behind all files", file(format="raw", offset=MAX_OFFSET + 1), RequestError, "offset"),
    Case("an offset where there are rows", file(offset=5), RequestError, "offset"),
    Case("a digest of capitals", file(sha256="A" * 64), RequestError, "sha256"),
    Case("a read that resumes a write", file(resume=True), RequestError, "resume: only a write takes this"),
    Case("a read with a digest", file(sha256="0" * 64), RequestError, "sha256: only a write takes this"),
    Case("a read with a condition of a write", file(if_match="*"), RequestError, "if_match: only a write takes this"),
    Case("a number for a flag", file(deflate=1), RequestError, "deflate"),
    Case("a digest with a line feed behind it", file(sha256="a" * 64 + "\n"), RequestError, "sha256"),
    Case("a digest of 63 digits", file(sha256="a" * 63), RequestError, "sha256"),
    Case("an interruption as text", file(interrupt="yes"), RequestError, "interrupt"),
    Case("a schema that is a list", file(schema=["n"]), RequestError, "schema"),
    Case("a schema of numbers", file(schema={"n": 1}), RequestError, "schema"),
    Case("an unknown type in a schema", file(schema={"n": "int46"}), RequestError, "Did you mean 'int64'?"),
    Case("a type of Arrow's that is not taken", file(schema={"n": "int64[pyarrow]"}), RequestError, "no Arrow type"),
    Case("a type that is code", file(schema={"n": "pa.int64()"}), RequestError, "no Arrow type"),
    Case("types in each other without end", file(schema={"n": "list<" * 1000}), RequestError, "no Arrow type"),
    Case("a list in lists, once too often", file(schema={"n": "list<" * 9 + "int8" + ">" * 9}), RequestError, "no Arrow"),
    Case("a type of a column without end", file(schema={"n": "x" * (MAX_TYPE_NAME_CHARACTERS + 1)}), RequestError, "no Arrow type"),
    Case("a type of brackets alone", file(schema={"n": "struct<<<>>>"}), RequestError, "no field of a struct"),
    Case("brackets that close nothing", file(schema={"n": "struct<a: int8>>"}), RequestError, "schema.n"),
    Case("a field without type", file(schema={"n": "struct<a>"}), RequestError, "no field of a struct"),
    Case("a decimal of no digits", file(schema={"n": "decimal128(0, 0)"}), RequestError, "a precision of 0"),
    Case("a decimal of too many digits", file(schema={"n": "decimal128(39, 0)"}), RequestError, "a precision of 39"),
    Case("a zone that is a path", file(schema={"n": "timestamp[us, ../../etc/passwd]"}), RequestError, "no Arrow type"),
    Case("a list in a CSV cell", file(schema={"n": "list<int8>"}), RequestError, "a CSV cell can not hold"),
    Case("bytes in JSON", file(format="jsonl", schema={"n": "binary"}), RequestError, "a JSON value can not hold"),
    Case("more columns than a table has", file(columns=["n"] * (MAX_COLUMNS + 1)), RequestError, "columns"),
    Case("more lines to skip than a log has", file(skip_rows=MAX_SKIPPED_ROWS + 1), RequestError, "skip_rows"),
    Case("a header far behind the beginning", file(header=MAX_SKIPPED_ROWS + 1), RequestError, "header"),
    Case("a header before the first line", file(header=0), RequestError, "header"),
    Case("more texts for null than anybody lists", file(null_values=["-"] * (MAX_NULL_VALUES + 1)), RequestError, "null"),
    Case("two delimiters", file(delimiter=";;"), RequestError, "delimiter"),
    Case("a decimal point that is none", file(decimal="-"), RequestError, "decimal"),
    Case("an encoding that nobody knows", file(encoding="utf-9"), RequestError, "encoding"),
    Case("types by half of a file", file(infer="half"), RequestError, "infer"),
    Case("kinds that are text", file(kinds={"a": "int64"}), RequestError, "kinds.a"),
    Case("kinds beyond all", file(kinds={"a": {"kinds": 2**40}}), RequestError, "kinds.a"),
    Case("kinds without end", file(kinds={"a": nested_kinds(40)}), RequestError, "kinds.a"),
    Case("kinds of more fields than a struct", file(kinds={"a": {"fields": {f"f{at}": {} for at in range(300)}}}), RequestError, "kinds.a"),
    Case("kinds beside a schema", file(kinds={}, schema={"a": "int64"}), RequestError, "kinds"),
    Case("kinds of bytes", file(kinds={}, format="raw"), RequestError, "kinds"),
    Case("a column that is a number", file(columns=[1]), RequestError, "columns"),
    Case("columns as text", file(columns="n"), RequestError, "columns"),
    Case("a column that is asked for twice", file(columns=["n", "n"]), RequestError, "asked for twice"),
    Case("a column that is not there", file(columns=["m"]), RequestError, "no column is named 'm'"),
    Case("a column of half a character", file(columns=["\ud800"]), RequestError, "columns"),
    Case("a schema for raw bytes", file(format="raw", schema={"n": "int8"}), RequestError, "raw rows have a schema"),
    Case("a schema for Arrow", file(format="arrow", schema={"n": "int8"}), RequestError, "brings its own schema"),
    Case("records without a format", file(format="packed"), RequestError, "needs a record format"),
    Case("records in the host's byte order", packed("@i", "n"), RequestError, "does not name its byte order"),
    Case("records of pointers", packed("<P", "n"), RequestError, "is not known"),
    Case("records of nothing", packed("<"), RequestError, "record"),
    Case("records of padding alone", packed("<4x"), RequestError, "record"),
    Case("a record that is too long", packed(f"<{MAX_RECORD_BYTES + 1}s", "n"), RequestError, "a record of"),
    Case("a record of a million fields", packed("<999999B", "n"), RequestError, "a record of 999999 bytes"),
    Case("a count beyond six digits", packed("<9999999999s", "n"), RequestError, "is not known"),
    Case("a record with a name too few", packed("<ii", "n"), RequestError, "2 fields and columns names 1"),
    Case("a record with a name twice", packed("<ii", "n", "n"), RequestError, "two fields are named"),
    Case("a string of no bytes", packed("<0s", "n"), RequestError, "0s in the record format holds nothing"),
    Case("a record that is not ASCII", packed("<ï", "n"), RequestError, "is not known"),
    Case("an unknown key of a listing", ask("device.listing", columns=["path"]), RequestError, "columns: unknown key"),
    Case("a listing of a folder that is not there", ask("device.listing", path="/none"), FileMissing, "no such"),
    Case("a listing that goes deep with text", ask("device.listing", recursive="yes"), RequestError, "recursive"),
    Case("code that is a number", ask("device.exec", code=1), RequestError, "code"),
    Case("code that is too long", ask("device.exec", code="#" * (MAX_CODE_CHARACTERS + 1)), RequestError, "code"),
    Case("code that is none", ask("device.exec", code="def"), DeviceError, "SyntaxError"),
    Case("code with half a character", ask("device.exec", code="print('\ud800')"), RequestError, "code"),
    Case("no time to run", ask("device.exec", code="1", timeout=0), RequestError, "timeout"),
    Case("all time to run", b'{"type": "device.exec", "device": "demo", "code": "1", "timeout": 1e999}', RequestError, "timeout"),
    Case("a time that is no number", b'{"type": "device.exec", "device": "demo", "code": "1", "timeout": NaN}', RequestError, "timeout"),
    Case("too many files of a tree", ask("device.tree", files=["a"] * (MAX_FILES + 1)), RequestError, "files"),
    Case("a file of a tree without name", ask("device.tree", files=[""]), RequestError, "files.0"),
    Case("a file that leads out of its tree", ask("device.tree", files=["../a"]), FileMissing, "no such file below"),
    Case("a file of a tree that is absolute", ask("device.tree", files=["/etc/passwd"]), FileMissing, "no such file below"),
    Case("a sequence number beyond what JSON holds", ask("device.session", since_seq=MAX_SEQ + 1), RequestError, "since_seq"),
    Case("a session from before its beginning", ask("device.session", since_seconds=-1), RequestError, "since_seconds"),
    Case("a session from ten years back", ask("device.session", since_seconds=3e8), RequestError, "since_seconds"),
    Case("a session of columns without types", ask("device.session", format="csv"), RequestError, "schema"),
    Case("a fleet that is a list", ask("fleet.file", devices=["demo"], path="/a.csv"), RequestError, "devices"),
    Case("a glob that is too long", ask("fleet.file", devices="*" * (MAX_GLOB_CHARACTERS + 1), path="/"), RequestError, "devices"),
    Case("a glob that fits nothing", ask("fleet.file", devices="[!-", path="/a.csv"), UnknownName, "devices"),
    Case("too many rows of the table", ask("mock", total_rows=10**10), RequestError, "total_rows"),
    Case("a delay below nothing", ask("mock", delay_per_row=-1), RequestError, "delay_per_row"),
    Case("more parts than a flight has", ask("mock", endpoints=100_000), RequestError, "endpoints"),
    Case("a variant that is not there", ask("mock", variant="Simple"), RequestError, "variant"),
    Case("a file that is not there", ask(path="/none.csv"), FileMissing, "no such file"),
    Case("a file above the root is below it", ask(path="/../../../../etc/passwd", format="raw"), FileMissing, "demo:/etc/passwd"),
    Case("a path as Windows has it", ask(path="C:\\boot.ini", format="raw"), FileMissing, "no such file"),
    Case("a path as a URL has it", ask(path="file:///etc/passwd", format="raw"), FileMissing, "no such file"),
    Case("a home folder", ask(path="~/.ssh/id_rsa", format="raw"), FileMissing, "no such file"),
    Case("a device file", ask(path="/dev/zero", format="raw"), FileMissing, "no such file"),
    Case("the root as a file", ask(path="/..", format="raw"), RequestError, "the root folder"),
    Case("a name of 256 characters", ask(path="/" + "n" * 256, format="raw"), DeviceError, "name is too long"),
    Case("a file used as a folder", ask(path="/a.csv/b.csv", format="raw"), DeviceError, "demo:/a.csv/b.csv"),
    Case("CSV that is read as Arrow", file(format="arrow"), DataError, "no Arrow message starts here"),
]  # fmt: skip

# The parts of a path descriptor.
DESCRIPTORS = [
    Case("one part", [b"demo"], RequestError, "a path descriptor has two parts, not 1"),
    Case("three parts", [b"demo", b"/", b"a.csv"], RequestError, "two parts, not 3"),
    Case("a device without name", [b"", b"/a.csv"], RequestError, "device"),
    Case("a path without name", [b"demo", b""], RequestError, "path"),
    Case("a path without end", [b"demo", b"/" * 100_000], RequestError, "path"),
    Case("a thousand parts", [b"a"] * 1000, RequestError, "two parts, not 1000"),
    Case("NUL", [b"demo", b"/a\0"], RequestError, "the path holds the character"),
    Case("a device that is not there", [b"dem", b"/a.csv"], UnknownName, "no such device"),
]

# Writes: a request, and the name of the table that comes with it (`TABLES` of the test).
WRITES = [
    Case("nothing", (b"", "numbers"), RequestError, "not JSON"),
    Case("bytes that are not UTF-8", (b"\xff{}", "numbers"), RequestError, "not UTF-8"),
    Case("a byte too many", (b" " * (MAX_REQUEST_BYTES + 1), "numbers"), RequestError, "are allowed"),
    Case("an unknown device", (ask(device="dem", path="/new.csv"), "numbers"), UnknownName, "dem: no such device"),
    Case("a folder that is not there", (ask(path="/none/new.csv"), "numbers"), FileMissing, "demo:/none/new.csv: no such file"),
    Case("the root folder", (ask(path="/", format="csv"), "numbers"), RequestError, "root folder"),
    Case("lists as CSV", (file(), "lists"), DataError, "column n"),
    Case("a null in a record", (packed("<H", "n"), "nulls"), DataError, "column n: a packed record can not hold null"),
    Case("no bytes", (file(format="raw"), "numbers"), DataError, "raw needs a column data"),
    Case("a name of 256 characters", (ask(path="/" + "n" * 252 + ".csv"), "numbers"), DeviceError, "name is too long"),
    Case("a write from an offset on", (file(format="raw", offset=5), "bytes"), RequestError, "offset: only reading begins at an offset"),
    Case("rows of text to go on with", (file(resume=True), "bytes"), RequestError, "a write of csv cannot be resumed"),
    Case("a number for going on", (file(format="raw", resume=1), "bytes"), RequestError, "resume"),
    Case("another version", (file(format="raw", if_match='"other"'), "bytes"), VersionConflict, "if_match: the file is not the version that was asked for"),
    Case("something that takes nothing", (ask("device.listing"), "numbers"), RequestError, "cannot be written"),
]  # fmt: skip

# What is to be listed.
CRITERIA = [
    Case("a glob that is not UTF-8", b"\xff*", RequestError, "criteria: not UTF-8"),
    Case("a glob that is too long", b"*" * (MAX_GLOB_BYTES + 1), RequestError, f"at most {MAX_GLOB_BYTES} bytes"),
    Case("a request that breaks off", b'{"type":', RequestError, "not JSON"),
    Case("a request of no type", b"{}", RequestError, "type: no type is given"),
    Case("a request after spaces", b'   {"type": "moc"}', RequestError, "there is no request type 'moc'"),
]

# The name and the body of an action.
ACTIONS = [
    Case("no name", ("", b"{}"), RequestError, "no such action"),
    Case("an unknown name", ("devics", b"{}"), RequestError, "Did you mean 'devices'?"),
    Case("a name without end", (LONG, b"{}"), RequestError, "no such action"),
    Case("a name with a slash", ("../devices", b"{}"), RequestError, "no such action"),
    Case("a body that is no JSON", ("devices", b"{"), RequestError, "devices: not JSON"),
    Case("a body that is a list", ("device.info", b"[]"), RequestError, "a JSON object is needed"),
    Case("a body that is too long", ("devices", b" " * (MAX_REQUEST_BYTES + 1)), RequestError, "are allowed"),
    Case("a body that nests too deep", ("devices", DEEP.encode()), RequestError, "nested too deep"),
    Case("a body that is not UTF-8", ("devices", b"\xff"), RequestError, "devices: not UTF-8"),
    Case("a key where there is none", ("health", b'{"a": 1}'), RequestError, "a: unknown key"),
    Case("no device", ("device.info", b"{}"), RequestError, "device: this key is needed"),
    Case("a device that is not there", ("device.info", b'{"device": "x"}'), UnknownName, "no such device"),
    Case("an unknown kind of reset", ("device.reset", b'{"device": "demo", "kind": "warm"}'), RequestError, "kind"),
    Case("the root is not removed", ("file.remove", b'{"device": "demo", "path": "/"}'), RequestError, "root folder"),
    Case("the root above the root", ("file.remove", b'{"device": "demo", "path": "/../.."}'), RequestError, "root folder"),
    Case("the root is not renamed", ("file.rename", b'{"device": "demo", "path": "/", "to": "/x"}'), RequestError, "root"),
    Case("a new name with NUL", ("file.rename", b'{"device": "demo", "path": "/a.csv", "to": "/\\u0000"}'), RequestError, "holds the character"),
    Case("no new name", ("file.rename", b'{"device": "demo", "path": "/a.csv"}'), RequestError, "to: this key is needed"),
    Case("a folder that is there", ("file.mkdir", b'{"device": "demo", "path": "/d"}'), DeviceError, "exists already"),
    Case("a folder in a file", ("file.mkdir", b'{"device": "demo", "path": "/a.csv/d"}'), DeviceError, "demo:/a.csv/d"),
    Case("a digest of less than nothing", ("file.hash", b'{"device": "demo", "path": "/a.csv", "limit": -1}'), RequestError, "limit"),
    Case("code without time", ("device.exec", b'{"device": "demo", "code": "1", "timeout": 0}'), RequestError, "timeout"),
]  # fmt: skip

# Actions of Flight's own, whose bodies are protobuf.
PROTOBUF = [
    Case("nothing to cancel", ("CancelFlightInfo", b""), RequestError, "the body is not a CancelFlightInfoRequest"),
    Case("JSON", ("CancelFlightInfo", b"{}"), RequestError, "not a CancelFlightInfoRequest"),
    Case("a length without end", ("CancelFlightInfo", b"\x0a" + b"\xff" * 10), RequestError, "not a CancelFlightInfo"),
    Case("a length that lies", ("CancelFlightInfo", b"\x0a\x7fabc"), RequestError, "not a CancelFlightInfoRequest"),
    Case("another field", ("CancelFlightInfo", b"\x12\x00"), RequestError, "not a CancelFlightInfoRequest"),
    Case("content that is no flight", ("CancelFlightInfo", b"\x0a\x02\xff\xff"), RequestError, "not a CancelFlightInfo"),
    Case("a field too many", ("RenewFlightEndpoint", b"\x0a\x00\x12\x00"), RequestError, "not a RenewFlightEndpoint"),
    Case("an endpoint without a ticket", ("RenewFlightEndpoint", b"\x0a\x00"), RequestError, ""),
    Case("an endpoint that is garbage", ("RenewFlightEndpoint", b"\x0a\x03\x0a\xff\xff"), RequestError, "not a RenewFlight"),
]  # fmt: skip

CASES = {
    "tickets": UNREADABLE + REFUSED,
    "path descriptors": DESCRIPTORS,
    "writes": WRITES,
    "criteria": CRITERIA,
    "action bodies": ACTIONS,
    "protobuf bodies": PROTOBUF,
}
