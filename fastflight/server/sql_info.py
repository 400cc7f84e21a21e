"""The answer of Flight SQL's CommandGetSqlInfo: what this server's SQL can do, as drivers ask for it.

A driver reads an entry that is missing as a failure (DBeaver did: apache/arrow#40249), so each entry of FlightSql.proto
is here. Their numbers come in blocks, and all entries of a block have one type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from fastflight.server.prepared import LIFETIME_SECONDS, MAX_STATEMENTS
from fastflight.service.choices import MAX_REQUEST_BYTES

# The types of values, in the order of the union's type codes.
STRING, BOOL, INT64, INT32, STRINGS, INT32_LISTS = range(6)
VALUE_TYPES = (
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
)
SCHEMA = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", pa.dense_union(VALUE_TYPES), nullable=False)]
)
# Words of DuckDB's SQL that the standard does not have.
KEYWORDS = "ANTI ASOF EXCLUDE GLOB ILIKE LIMIT OFFSET PIVOT POSITIONAL QUALIFY SAMPLE SEMI SUMMARIZE UNPIVOT".split()
NUMERIC = (
    "ABS ACOS ASIN ATAN ATAN2 CEIL COS COT DEGREES EXP FLOOR LN LOG LOG10 MOD PI POWER RADIANS RANDOM ROUND".split()
)
NUMERIC += "SIGN SIN SQRT TAN".split()
STRING_FUNCTIONS = "ASCII CHR CONCAT LEFT LENGTH LOWER LPAD LTRIM REPEAT REPLACE RIGHT RPAD RTRIM STRPOS".split()
STRING_FUNCTIONS += "SUBSTRING TRIM UPPER".split()
SYSTEM = "COALESCE IFNULL NULLIF".split()
TIMES = "CURRENT_DATE DATE_DIFF DATE_PART DATE_TRUNC DAY EPOCH EPOCH_MS HOUR MINUTE MONTH NOW SECOND STRFTIME".split()
TIMES += "STRPTIME TIME_BUCKET TO_TIMESTAMP YEAR".split()
# Values of FlightSql.proto's enumerations.
CASE_INSENSITIVE, NULLS_AT_END, FULL_OUTER_JOINS, NO_TRANSACTIONS = 1, 3, 2, 0
# Sets of such values: the bit of each value.
ONLY_NO_TRANSACTION, FORWARD_ONLY, READ_ONLY = 1 << 0, 1 << 1, 1 << 1
GROUP_BY_ANYTHING, MINIMUM_AND_CORE, ENTRY_LEVEL, ALL_SUBQUERIES, UNION_AND_ALL = 0b11, 0b11, 0b1, 0b1111, 0b11


def _blocks() -> Iterator[tuple[int, int, list[Any]]]:
    """Yield the number of the first entry of each block, the type of its values, and the values."""
    yield 0, STRING, ["fastflight", version("fastflight-micropython"), pa.__version__]
    yield 3, BOOL, [True, True, False]  # read only; SQL; no Substrait
    yield 6, STRING, ["", ""]  # the versions of Substrait
    yield 8, INT32, [NO_TRANSACTIONS]
    yield 9, BOOL, [False, False, False]  # CancelQuery (CancelFlightInfo replaces it), ingestion
    yield 100, INT32, [round(LIFETIME_SECONDS * 1000), 0]
    yield 500, BOOL, [False, False, False]  # create and drop
    yield 503, INT32, [CASE_INSENSITIVE]
    yield 504, STRING, ['"']
    yield 505, INT32, [CASE_INSENSITIVE]
    yield 506, BOOL, [True]  # all tables can be selected from
    yield 507, INT32, [NULLS_AT_END]
    yield 508, STRINGS, [KEYWORDS, NUMERIC, STRING_FUNCTIONS, SYSTEM, TIMES]
    yield 513, STRING, ["\\", ""]  # escapes % and _ in patterns; further characters of names
    yield 515, BOOL, [True, True]  # aliases of columns; null plus a value is null
    yield 517, INT32_LISTS, [{}]  # of the function CONVERT, which DuckDB does not have
    yield 518, BOOL, [True, False, True, True]  # aliases of tables; must differ; order by expressions, unrelated
    yield 522, INT32, [GROUP_BY_ANYTHING]
    yield 523, BOOL, [True, True]  # LIKE ... ESCAPE; columns without nulls
    yield 525, INT32, [MINIMUM_AND_CORE, ENTRY_LEVEL]
    yield 527, BOOL, [False]  # foreign keys and the like
    yield 528, INT32, [FULL_OUTER_JOINS]
    yield 529, STRING, ["schema", "procedure", "catalog"]
    yield 532, BOOL, [True]  # the catalog comes first in a name
    yield 533, INT32, [0, 0, 0]  # where else names have schemas and catalogs; UPDATE ... WHERE CURRENT OF
    yield 536, BOOL, [False, False]  # SELECT FOR UPDATE; procedures
    yield 538, INT32, [ALL_SUBQUERIES]
    yield 539, BOOL, [True]  # correlated subqueries
    yield 540, INT32, [UNION_AND_ALL]
    yield 541, INT64, [0] * 15  # the largest of each thing; 0 means no limit, or one that is not known
    yield 556, BOOL, [True]
    yield 557, INT64, [MAX_REQUEST_BYTES, MAX_STATEMENTS, 0, 0, 0]
    yield 562, INT64, [NO_TRANSACTIONS]  # JDBC reads a bigint
    yield 563, BOOL, [False]
    yield 564, INT32, [ONLY_NO_TRANSACTION]
    yield 565, BOOL, [False, False]  # create and drop in transactions
    yield 567, INT32, [FORWARD_ONLY, 0, READ_ONLY, 0, 0]
    yield 572, BOOL, [False] * 5  # batches of updates, savepoints, parameters with names, LOBs, function calls


ENTRIES = {first + i: (type_, value) for first, type_, values in _blocks() for i, value in enumerate(values)}


def sql_info(numbers: Collection[int]) -> pa.Table:
    """Return the entries with these numbers; all if there are none. A number that does not exist has no row."""
    chosen = [number for number in dict.fromkeys(numbers) if number in ENTRIES] if numbers else list(ENTRIES)
    values: list[list[Any]] = [[] for _ in VALUE_TYPES]
    types, offsets = [], []
    for number in chosen:
        type_, value = ENTRIES[number]
        types.append(type_)
        offsets.append(len(values[type_]))
        values[type_].append(value)
    union = pa.UnionArray.from_dense(
        pa.array(types, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(each, field.type) for field, each in zip(VALUE_TYPES, values, strict=True)],
        [field.name for field in VALUE_TYPES],
    )
    return pa.table([pa.array(chosen, pa.uint32()), union], SCHEMA)
