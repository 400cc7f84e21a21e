"""Files over HTTP, on a simulated board: what is read is what Flight reads, what is written is verified and whole."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from .asgi_client import HERE, AsgiClient, scope
from .board_gateway import BoardGateway, in_front_of_a_board

CSV = b"n,text\n1,one\n2,two\n"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardGateway]:
    with in_front_of_a_board(tmp_path_factory.mktemp("board")) as board:
        yield board


@pytest.fixture(autouse=True)
def _nothing_left(board: BoardGateway) -> Iterator[None]:
    yield
    assert not list(board.folder.rglob("*fastflight*"))


def test_a_folder_is_its_entries(board: BoardGateway) -> None:
    listed = board.ask("GET", "").json
    assert [entry["path"] for entry in listed["entries"]][:2] == ["/events.jsonl", "/log.bin"]
    assert {entry["kind"] for entry in listed["entries"]} == {"file"}


def test_a_file_is_its_bytes(board: BoardGateway) -> None:
    given = board.ask("GET", "log.bin")
    content = (board.folder / "log.bin").read_bytes()
    assert (given.status, given.body, given.ended) == (200, content, True)
    assert given.headers[b"content-length"] == str(len(content)).encode()
    assert given.headers[b"content-disposition"] == b"attachment; filename*=UTF-8''log.bin"


@pytest.mark.parametrize(
    ("range_", "status", "start", "stop"),
    [
        ("bytes=0-9", 206, 0, 10),
        ("bytes=17990-99999", 206, 17_990, 18_000),
        ("Bytes=-10", 206, 17_990, 18_000),
        ("bytes=-99999", 206, 0, 18_000),
        ("bytes=0-", 206, 0, 18_000),
        ("bytes=17000-", 200, 0, 18_000),  # the rest, of nobody knows which version
        ("bytes=9-0", 200, 0, 18_000),
        ("bytes=-", 200, 0, 18_000),
        ("lines=1-2", 200, 0, 18_000),
        ("bytes=0-1,3-4", 200, 0, 18_000),
    ],
)
def test_a_part_of_a_file(board: BoardGateway, range_: str, status: int, start: int, stop: int) -> None:
    given = board.ask("GET", "log.bin", headers={"range": range_})
    assert (given.status, given.body) == (status, (board.folder / "log.bin").read_bytes()[start:stop])
    if status == 206:
        assert given.headers[b"content-range"] == f"bytes {start}-{stop - 1}/18000".encode()


def test_a_part_that_is_not_there(board: BoardGateway) -> None:
    refused = board.ask("GET", "log.bin", headers={"range": "bytes=18000-"})
    assert (refused.status, refused.json["where"]) == (416, "Range")
    assert refused.headers[b"content-range"] == b"bytes */18000"


def test_a_header_tells_what_could_not_be_read(board: BoardGateway) -> None:
    (board.folder / "odd.csv").write_bytes(CSV + b"3\xe9,x,y,z\n")
    summary = json.loads(board.ask("GET", "odd.csv", query="format=csv").headers[b"fastflight-summary"])
    assert (summary["rejected"], summary["text"].split(" (")[0]) == (1, "1 row rejected")
    (board.folder / "odd.csv").write_bytes(CSV)
    assert b"fastflight-summary" not in board.ask("GET", "odd.csv", query="format=csv").headers
    (board.folder / "odd.csv").unlink()


def test_the_rows_of_a_file(board: BoardGateway) -> None:
    rows = pa.csv.read_csv(board.folder / "readings.csv")
    as_arrow = pa.ipc.open_stream(board.ask("GET", "readings.csv", query="format=arrow").body).read_all()
    as_csv = pa.csv.read_csv(pa.BufferReader(board.ask("GET", "readings.csv", query="format=csv").body))
    as_parquet = pa.parquet.read_table(
        io.BytesIO(board.ask("GET", "readings.csv", headers={"accept": "application/vnd.apache.parquet"}).body)
    )
    for table in (as_arrow, as_csv, as_parquet):
        assert table["temperature"].equals(rows["temperature"])
    few = board.ask("GET", "readings.csv", query="format=csv&columns=humidity,time&batch_rows=100").body
    assert few.splitlines()[0] == b"humidity,time"


@pytest.mark.parametrize("asked", [{"query": "format=csv"}, {"headers": {"accept": "text/csv"}}])
def test_no_cell_begins_a_formula_where_that_is_asked(board: BoardGateway, asked: dict[str, Any]) -> None:
    texts = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "a=1", " =1", "'=1", "", None]
    rows = [{"=n": -number, "text": text} for number, text in enumerate(texts)]
    (board.folder / "formulas.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    query = asked.get("query", "") + "&formulas=escape"
    escaped = board.ask("GET", "formulas.jsonl", query=query, headers=asked.get("headers"))
    read = list(csv.DictReader(io.StringIO(escaped.body.decode(), newline="")))
    assert [row["text"] for row in read] == [
        *("'=1+1", "'+1", "'-1", "'@a", "'\tx", "'\rx"),
        *("a=1", " =1", "'=1", "", ""),
    ]
    assert [row["'=n"] for row in read] == [str(-number) for number in range(len(texts))]
    plain = board.ask("GET", "formulas.jsonl", **asked).body.decode()
    assert plain.startswith("=n,text") and "'" not in plain.replace("'=1\n", "")


def test_bytes_are_written_as_they_are(board: BoardGateway) -> None:
    content = bytes(range(256)) * 300
    written = board.ask("PUT", "new.bin", content[:1000], content[1000:])
    assert written.status == 201
    assert written.json["bytes"] == len(content)
    assert written.json["sha256"] == hashlib.sha256(content).hexdigest()
    assert (board.folder / "new.bin").read_bytes() == content


@pytest.mark.parametrize(
    ("name", "media_type", "content", "there"),
    [
        ("same.csv", "text/csv", b"a, b\r\n1,2", b"a, b\r\n1,2"),
        ("other.jsonl", "text/csv", CSV, b'{"n":1,"text":"one"}\n{"n":2,"text":"two"}\n'),
        ("other.csv", "application/x-ndjson", b'{"n":1,"text":"one"}\n{"n":2,"text":"two"}\n', CSV),
        ("empty.txt", "", b"", b""),
    ],
)
def test_rows_are_written_in_the_format_of_the_file(
    board: BoardGateway, name: str, media_type: str, content: bytes, there: bytes
) -> None:
    written = board.ask("PUT", name, content, headers={"content-type": media_type})
    assert (written.status, (board.folder / name).read_bytes()) == (201, there)


def test_arrow_is_written_as_rows(board: BoardGateway) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"n": [1, 2], "text": ["one", "two"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written = board.ask(
        "PUT", "a.csv", bytes(sink.getvalue()), headers={"content-type": "application/vnd.apache.arrow.stream"}
    )
    assert (written.json["rows"], (board.folder / "a.csv").read_bytes()) == (2, CSV)


# The column becomes one of fractions behind the 64 KiB that `infer=sample` looks at.
LATE = b"n,late\n" + b"".join(b"%d,%s\n" % (n, b"20.5" if n > 14_900 else b"20") for n in range(15_000)) + b"15000,%d\n"


@pytest.mark.parametrize(
    ("content", "query", "last"),
    [
        (LATE % 21, "", {"n": 15_000, "late": 21.0}),
        (LATE % 2**60, "", {"n": 15_000, "late": str(2**60)}),
        (LATE.replace(b",", b";").replace(b".", b",") % 21, "delimiter=;&decimal=,", {"n": 15_000, "late": 21.0}),
        (LATE % 21, "infer=sample&on_error=skip", {"n": 15_000, "late": 21}),
    ],
)
def test_the_whole_body_decides_the_types(
    board: BoardGateway, content: bytes, query: str, last: dict[str, Any]
) -> None:
    written = board.ask("PUT", "late.jsonl", content, headers={"content-type": "text/csv"}, query=query)
    assert (written.status, written.json["rows"]) == (201, 15_001)
    rows = [json.loads(line) for line in (board.folder / "late.jsonl").read_bytes().splitlines()]
    assert rows[-1] == last and type(rows[-1]["late"]) is type(last["late"])
    assert [row["n"] for row in rows] == list(range(15_001))


def test_a_body_that_is_too_large_to_be_kept_is_refused(board: BoardGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.gateway.content.uploads.MAX_SPOOLED_BYTES", 10_000)
    content, headers = b"n\n" + b"1\n" * 10_000, {"content-type": "text/csv"}
    refused = board.ask("PUT", "large.jsonl", content, headers=headers)
    assert refused.status == 413 and "infer=sample" in refused.json["hint"]
    assert board.ask("PUT", "large.jsonl", content, headers=headers, query="infer=sample").json["rows"] == 10_000


def test_a_bad_row_leaves_the_old_file_unless_it_may_be_skipped(board: BoardGateway) -> None:
    (board.folder / "old.jsonl").write_bytes(b"old")
    content = b"n\n" + b"1\n" * 60_000 + b"x,y\n2\n"  # behind what the types are inferred from
    headers = {"content-type": "text/csv"}
    refused = board.ask("PUT", "old.jsonl", content, headers=headers)
    assert (refused.status, refused.json["code"]) == (422, "data")
    assert (board.folder / "old.jsonl").read_bytes() == b"old"
    skipped = board.ask("PUT", "old.jsonl", content, headers=headers, query="on_error=skip")
    assert (skipped.status, skipped.json["rejected"], skipped.json["rows"]) == (201, 1, 60_001)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_upload_that_breaks_off_leaves_the_old_file(board: BoardGateway, mode: str) -> None:
    (board.folder / "old.bin").write_bytes(b"old")

    async def run() -> None:
        asked = scope("/devices/demo/files/old.bin", "PUT", (HERE,), f"mode={mode}")
        client = AsgiClient(board.app, asked, b"new" * 10_000, whole=False)
        client.leave()
        await client.call

    board.run(run())
    board.ask("GET", "")  # the board is free again
    assert (board.folder / "old.bin").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "status", "said"),
    [
        ("PUT", "none/new.csv", "", {}, 404, "demo:/none/new.csv: no such file or folder"),
        ("PUT", "new.jsonl", "on_error=ignore", {"content-type": "text/csv"}, 400, "Known: fail, skip"),
        ("DELETE", "none.csv", "", {}, 404, "demo:/none.csv: no such file"),
        ("DELETE", "", "", {}, 400, "root folder"),
        ("DELETE", "folder", "", {}, 409, "the folder is not empty"),
        ("PUT", "folder", "", {}, 409, "it is a folder"),
        ("GET", "log.bin/x", "", {}, 409, "a part of the path is a file"),
        ("GET", "n" * 300, "", {}, 400, "too long"),
        ("PUT", "n" * 300, "", {}, 400, "Use a shorter name"),
        ("POST", "log.bin", "", {}, 405, "Allowed: DELETE, GET, HEAD, PUT"),
        ("GET", "log.bin", "interrupt=true", {}, 400, "a GET cannot interrupt a program"),
        ("GET", "", "interrupt=true", {}, 400, "a GET cannot interrupt a program"),
        ("GET", "log.bin", "offset=5", {}, 400, "Use the header Range"),
        ("PUT", "log.bin", "file_format=xlsx", {}, 400, "Known: arrow, csv, jsonl, packed, raw"),
        ("GET", "readings.csv", "formulas=escape", {}, 400, "Use format=csv"),
        ("GET", "readings.csv", "format=csv&formulas=yes", {}, 400, "Known: escape"),
    ],
)
def test_what_cannot_be_done_says_why(
    board: BoardGateway, method: str, path: str, query: str, headers: dict[str, str], status: int, said: str
) -> None:
    (board.folder / "folder" / "in it").mkdir(parents=True, exist_ok=True)
    refused = board.ask(method, path, b"", query=query, headers=headers)
    assert refused.status == status, refused.json
    assert said in refused.json["text"]


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("query", ["path=/log.bin", "device=other", "type=device.exec&code=print(1)"])
def test_a_query_says_nothing_else_than_the_path(board: BoardGateway, method: str, query: str) -> None:
    before = (board.folder / "events.jsonl").read_bytes()
    refused = board.ask(method, "events.jsonl", b"{}", query=query)
    assert refused.status == 400, refused.json
    assert "the path gives this key" in refused.json["text"]
    assert (board.folder / "events.jsonl").read_bytes() == before


def test_a_name_with_a_newline_is_a_name(board: BoardGateway) -> None:
    for name in ("two\nlines", "end\n"):
        assert board.ask("PUT", name, b"x").status == 201
        assert (board.folder / name).read_bytes() == board.ask("GET", name).body == b"x"
        assert board.ask("DELETE", name).status == 204


def test_a_file_is_removed(board: BoardGateway) -> None:
    (board.folder / "gone.txt").write_bytes(b"x")
    assert board.ask("DELETE", "gone.txt").status == 204
    assert not (board.folder / "gone.txt").exists()


@pytest.mark.parametrize(("method", "coding"), [("PUT", "gzip"), ("PUT", "identity, gzip"), ("DELETE", "GZIP")])
def test_content_in_a_coding_is_refused_and_leaves_the_old_file(board: BoardGateway, method: str, coding: str) -> None:
    (board.folder / "old.bin").write_bytes(b"old")
    refused = board.ask(method, "old.bin", b"coded", headers={"content-encoding": coding})
    assert (refused.status, refused.json["where"]) == (415, "Content-Encoding")
    assert refused.headers[b"accept-encoding"] == b"identity"
    assert (board.folder / "old.bin").read_bytes() == b"old"


def test_content_in_no_coding_is_taken(board: BoardGateway) -> None:
    assert board.ask("PUT", "new.bin", b"new", headers={"content-encoding": "Identity"}).status == 201
    assert (board.folder / "new.bin").read_bytes() == b"new"


def test_a_part_of_a_file_cannot_be_put_and_leaves_the_old_file(board: BoardGateway) -> None:
    (board.folder / "old.bin").write_bytes(b"old")
    refused = board.ask("PUT", "old.bin", b"tail", headers={"content-range": "bytes 3-6/7"})
    assert (refused.status, refused.json["where"]) == (400, "Content-Range")
    assert (board.folder / "old.bin").read_bytes() == b"old"
