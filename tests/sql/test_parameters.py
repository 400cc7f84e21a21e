"""The types of a query's parameters, where the query tells them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fastflight.sql.parameters import REAL, TEXT, TIME, WHOLE
from tests.support.sql_engine import Sql


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ('select v from demo."a.csv" where v < ? and t = ?', [REAL, WHOLE]),
        ("select seq from demo.recording where seq between $2 and $1 and $3 <= recording.time", [WHOLE, WHOLE, TIME]),
        ("select 1 from demo.recording where direction in ('rx', ?) and not (seq <> ?)", [TEXT, WHOLE]),
        ("select seq from demo.recording limit ? offset ?", [WHOLE, WHOLE]),
        ("select ?::int + 1, ?::double, cast(? as timestamptz), ?::date, ?::text, ?::boolean",
         [WHOLE, REAL, TIME, pa.date32(), TEXT, pa.bool_()]),
        ("select ?, ? + 1, abs(?)", [TEXT, TEXT, TEXT]),
        ("select 1 from demo.recording where seq > $a and time > $a", [TEXT]),
        ('select 1 from demo."a.csv" a, demo."logs/b.jsonl" b where a.t = b.t and name = ? and a.t < ?', [TEXT, WHOLE]),
        ("with r as (select seq as s from demo.recording where seq < ?) from r where s > ?", [WHOLE, TEXT]),
        ("explain select seq from demo.recording where seq < ?", [WHOLE]),
    ],
)  # fmt: skip
def test_types_of_parameters(sql: Sql, query: str, types: list[pa.DataType]) -> None:
    assert sql.engine.prepare(query).parameters.types == types
