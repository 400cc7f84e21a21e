"""How a server finds own sources, what it says if it cannot, and what they do behind a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from fastflight import AsyncFastFlightClient, FastFlightClient, Source, SourceRequest, create_server
from fastflight.app.own_sources import load_sources
from fastflight.errors import RequestError, SourceError

MODULE = """
from fastflight import Source, SourceRequest
class Sales(SourceRequest):
    type = "sales"
class Taken(SourceRequest):
    type = "sql"
SALES = Source(Sales, read=lambda request: [])
SECOND = Source(Sales, read=lambda request: [])
TAKEN = Source(Taken, read=lambda request: [])
NUMBER = 7
class Broken:
    def __init__(self):
        raise OSError("no database")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {"shop": MODULE, "shop_syntax": "def", "shop_needs": "import not_installed"}.items():
        (tmp_path / f"{name}.py").write_text(text)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["shop"], "--source shop: not MODULE:NAME. As in my_package.sales:SALES"),
        (["shop:SALE"], "--source shop:SALE: shop has no 'SALE'. Did you mean 'SALES'"),
        (["shopp:SALES"], "there is no module 'shopp'. Start the server in the folder that has it"),
        (["shop.sub:SALES"], "there is no module 'shop.sub'. Start the server in the folder"),
        (["shop_needs:SALES"], "No module named 'not_installed'. Install the package that has not_installed"),
        (["shop_syntax:SALES"], "importing shop_syntax failed: SyntaxError.*shop_syntax.py, line 1"),
        (["shop:NUMBER"], "--source shop:NUMBER: int is no source. Give a fastflight.Source"),
        (["shop:Broken"], "making the source failed: OSError: no database. Correct it at .*shop.py, line 13"),
        (["shop:TAKEN"], "the request type 'sql' is taken by fastflight itself. Give the class .* another `type`"),
        (["shop:SALES", "shop:SECOND"], "--source shop:SECOND: .* 'sales' is taken by --source shop:SALES"),
    ],
)
def test_what_is_wrong_with_a_name(names: list[str], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        load_sources(names)


def test_a_source_by_name_and_one_that_is_installed(tmp_path: Path) -> None:
    points = tmp_path / "shop-1.0.dist-info" / "entry_points.txt"
    points.parent.mkdir()
    (points.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    points.write_text("[fastflight.sources]\nsales = shop:SALES\n")
    (installed,) = load_sources([])
    assert installed.request.type == "sales"
    assert load_sources(["shop:SALES"]) == (installed,)
    points.write_text("[fastflight.sources]\nnumber = shop:NUMBER\n")
    with pytest.raises(RequestError, match="entry point number of shop: int is no source"):
        load_sources([])


class Numbers(SourceRequest):
    type = "numbers"
    first: int = 0
    last: int = 9


STORED: list[pa.Table] = []


def read(request: Numbers) -> Iterator[pa.Table]:
    for number in range(request.first, request.last + 1):
        yield pa.table({"n": [number]})


async def aread(request: Numbers) -> AsyncIterator[pa.Table]:
    for part in read(request):
        yield part


def write(request: Numbers, rows: pa.RecordBatchReader) -> dict[str, Any] | None:
    if request.last == -1:
        return None
    if request.last == -2:
        raise ValueError(f"after {next(rows).num_rows} rows")
    STORED.append(rows.read_all())
    return {"sha256": "abc"}


def parts(request: Numbers) -> list[Numbers]:
    return [Numbers(first=request.first, last=4), Numbers(first=5, last=request.last)]


@pytest.mark.parametrize("has", [{"read": read}, {"aread": aread}, {"read": read, "aread": aread}], ids=" ".join)
def test_both_modes_whatever_the_author_wrote(has: dict[str, Any]) -> None:
    source: Source[Numbers] = Source(Numbers, parts=parts, **has)
    with create_server("grpc://127.0.0.1:0", sources=[source]) as server, FastFlightClient(server.location) as client:
        for mode in ("sync", "async"):
            stream = client.read_request(Numbers(mode=mode))
            path = mode if len(has) == 2 else {"read": "sync", "aread": "async"}["".join(has)]
            assert stream.schema.metadata[b"fastflight.path"] == path.encode()
            assert stream.to_arrow().column("n").to_pylist() == list(range(10))
        assert len(client.endpoints(Numbers())) == 2
        assert client.read_parallel(Numbers()).to_arrow().column("n").to_pylist() == list(range(10))


def test_over_http() -> None:
    with create_server("grpc://127.0.0.1:0", sources=[Source(Numbers, aread=aread)], http="0") as server:
        body = {"type": "numbers", "first": 8}
        lines = httpx.post(f"{server.http}/stream", json=body, headers={"accept": "application/jsonl"}).text
        assert [json.loads(line) for line in lines.splitlines()] == [{"n": 8}, {"n": 9}]
        refused = httpx.post(f"{server.http}/stream", json={**body, "first": "x"})
        assert refused.status_code == 400 and "first" in refused.text


def test_rows_are_written() -> None:
    rows = pa.table({"n": [1, 2, 3]})
    with create_server("grpc://127.0.0.1:0", sources=[Source(Numbers, write=write)]) as server:
        with FastFlightClient(server.location) as client:
            written = client.write_request(Numbers(), rows)
            assert (written.rows, written.bytes, written.sha256) == (3, 24, "abc")
            assert STORED.pop() == rows
            with pytest.raises(SourceError, match="source numbers: write returned before it had all rows"):
                client.write_request(Numbers(last=-1), rows)
            with pytest.raises(SourceError, match="source numbers: write raised ValueError. See the server's log"):
                client.write_request(Numbers(last=-2), rows)
            with pytest.raises(RequestError, match="numbers cannot be read"):
                client.read_request(Numbers())
        assert asyncio.run(awrite(server.location, rows)) == 3
        assert STORED.pop() == rows


async def awrite(location: str, rows: pa.Table) -> int:
    async with AsyncFastFlightClient(location) as client:
        return (await client.write_request(Numbers(), rows)).rows
