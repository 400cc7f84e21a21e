"""Batches that Arrow makes without loading pandas: in a process of its own, since it looks for it once."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.tables.bare import empty, one_content, one_number

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("way", pa.dictionary(pa.int8(), pa.string())),
        pa.field("rows", pa.list_(pa.struct({"x": pa.decimal128(9, 2)}))),
        pa.field("time", pa.timestamp("us", "UTC"), metadata={"unit": "us"}),
    ],
    metadata={"k": "v"},
)


def said(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


def test_a_batch_without_rows() -> None:
    batch = empty(SCHEMA)
    batch.validate(full=True)
    assert batch.num_rows == 0 and batch.schema.equals(SCHEMA, check_metadata=True)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))
def test_arrays_of_one(number: int, data: bytes) -> None:
    for made, type_, value in ((one_number(number), pa.int64(), number), (one_content(data), pa.binary(), data)):
        made.validate(full=True)
        assert made.type == type_ and made.to_pylist() == [value]


@pytest.mark.parametrize(
    "made", ["empty(pa.schema({'a': pa.int8()}))", "one_number(1)", "one_content(b'1').to_pylist()"]
)
def test_they_do_not_load_pandas(made: str) -> None:
    code = f"import sys\nimport pyarrow as pa\nfrom fastflight.tables.bare import *\n{made}\n"
    assert said(f"{code}print('pandas' in sys.modules)") == "False"
