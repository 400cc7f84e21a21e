"""What a client sends by HTTP: rows in a body, in any chunks; and the headers that say what it wants."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pyarrow as pa

from fastflight.errors import DataError, RequestError, Stopped
from fastflight.gateway.content.negotiation import choose_format
from fastflight.gateway.content.uploads import Content, UploadedRows, format_of_content
from fastflight.gateway.errors import HttpRefusal
from fastflight.tables import Layout
from tests.campaigns.fuzz.material import FEW_CUTS, Material, cut
from tests.campaigns.fuzz.shared_loop import Loop
from tests.campaigns.fuzz.table_formats import same
from tests.campaigns.fuzz.target import Target

FORMATS = ("raw", "csv", "jsonl", "arrow")
OFFERED = ("arrow", "jsonl", "csv", "parquet")
LOOP = Loop()


async def rows(format_: str, chunks: list[bytes], leaves: bool) -> pa.Table:
    """The rows of a body that comes in `chunks`; the client `leaves` before its end."""
    waiting = list(chunks)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            return {"type": "http.disconnect"} if leaves else {"type": "http.request"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": leaves or bool(waiting)}

    upload = UploadedRows(Content(receive), Layout(format_, on_error="skip"))
    await upload.begin()
    return pa.Table.from_batches([batch async for batch in upload.batches()], upload.schema)


def run(data: bytes) -> None:
    material = Material(data)
    kind, pattern = material.byte(), material.byte()
    if kind & 3 == 3:
        text = material.rest().decode("latin-1")
        try:
            assert format_of_content(text) in FORMATS
        except HttpRefusal as error:
            assert error.status == 415
        try:
            assert choose_format(None, text, OFFERED) in OFFERED
        except HttpRefusal as error:
            assert error.status == 406
        return
    format_, leaves, body = FORMATS[kind >> 2 & 3], kind & 3 == 2, material.rest()
    found: list[pa.Table | str] = []
    for chunks in ([body], cut(body, pattern, FEW_CUTS)):
        try:
            found.append(LOOP.run(rows(format_, chunks, leaves)))
        except Stopped:
            assert leaves
            return
        except (RequestError, DataError) as error:
            found.append(str(error))
    assert not leaves or isinstance(found[0], str)
    one, other = found
    if isinstance(one, pa.Table) and isinstance(other, pa.Table):
        assert format_ == "raw" and b"".join(one["data"].to_pylist()) == body or same(one, other)
    else:
        assert one == other


TARGET = Target(
    run,
    modules=(
        "fastflight.gateway.content.uploads",
        "fastflight.gateway.content.negotiation",
    ),
    seeds=(
        b"\x04\x12a,b\n1,2\nx\n",
        b'\x08\x03{"a":1}\n{"a":"x"}\n',
        b"\x00\x01bytes",
        b"\x06\x01a,b\n1,2\n",
        b"\x0c\x05\xff\xff\xff\xff\x10\x00\x00\x00",
        b"\x03\x00text/csv; charset=utf-8",
        b"\x03\x00application/vnd.apache.arrow.stream;q=0.5, */*;q=nan, text/*;q=1e9",
    ),
    running=LOOP.running,
)
