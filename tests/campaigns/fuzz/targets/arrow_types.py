"""Names of Arrow types in a schema that a request gives: a schema, or a `RequestError`."""

from __future__ import annotations

import pyarrow as pa

from fastflight.errors import RequestError
from fastflight.tables import schema_from_names
from fastflight.tables.schemas import project
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def run(data: bytes) -> None:
    names = dict(enumerate(Material(data).stretched().decode("utf-8", "replace").split("\n")))
    given = {f"c{index}": name for index, name in names.items()}
    try:
        schema = schema_from_names(given)
    except RequestError as error:
        assert str(error)
        return
    assert schema.names == list(given)
    # A name that Arrow prints means the same type.
    for field in schema:
        assert schema_from_names({"c": str(field.type)}).field("c").type == field.type
    assert pa.RecordBatch.from_pylist([], schema).num_rows == 0
    assert project(schema, schema.names[:1]).names == schema.names[:1]


TARGET = Target(
    run,
    seeds=(
        b"\x00int64\nstring\nfloat",
        b"\x00timestamp[us]\ntimestamp[ms, UTC]\ntimestamp[s, tz=Europe/Berlin]",
        b"\x00decimal128(9, 2)\ndecimal128(38, -5)",
        b"\x00list<int64>\nlist<item: struct<x: int64, y: string>>",
        b"\x00struct<a: list<struct<b: time32[ms]>>, c: duration[ns]>",
        b"\x00struct<>\nlist<element: decimal128(1,0)>",
    ),
)
