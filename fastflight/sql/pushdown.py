"""Finds which columns and rows of each table a query needs, in DuckDB's plan of the query over empty tables.

The plan has the filters of each scan. Of these only comparisons of `seq` and `time` with constants are used; everything
else is left to DuckDB, which applies all filters again to the rows that it gets. A scan's columns are those in a second
plan, made without moving filters into scans: in the first one they lack the columns that only filters use. A table that
the plan scans more than once is narrowed to what all of its scans need together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

_TIME = r"'(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\+00'::TIMESTAMP WITH TIME ZONE"
_COMPARISON = re.compile(rf"(?:optional: )?\(?(?P<column>seq|time) (?P<sign>>=|<=|=|>|<) (?:(?P<seq>\d+)|{_TIME})\)?")
_NAME_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The part of a table that a query needs; None where nothing is known. All bounds are included.

    Times are in microseconds since 1970. `limit` is the number of rows, counted from the first.
    """

    columns: list[str] | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    limit: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no row can be needed."""
        pairs = ((self.from_seq, self.to_seq), (self.from_time, self.to_time))
        return any(low is not None and high is not None and low > high for low, high in pairs)

    def joined(self, other: Narrowing) -> Narrowing:
        """Return a narrowing that includes the rows of both, and has no columns."""

        def outer(low: bool, *bounds: int | None) -> int | None:
            known = [bound for bound in bounds if bound is not None]
            return None if len(known) < len(bounds) else (min if low else max)(known)

        return Narrowing(
            None,
            outer(True, self.from_seq, other.from_seq),
            outer(False, self.to_seq, other.to_seq),
            outer(True, self.from_time, other.from_time),
            outer(False, self.to_time, other.to_time),
        )


Plan = Sequence[Mapping[str, Any]]


def narrowing_of(
    table: Sequence[str], count: int, filtered: Plan, unfiltered: Plan, columns: Sequence[str]
) -> Narrowing:
    """Return the narrowing of `table`, a qualified name that the query has `count` times. The table has `columns`.

    If a plan scans the table less often, nothing is known about it. At least one column is needed to count rows.
    """
    scans = list(_scans(filtered, table))
    if len(scans) < count:
        return Narrowing()
    joined = replace(_narrowing(scans[0]), limit=_limit(filtered) if len(scans) == 1 else None)
    for each in scans[1:]:
        joined = joined.joined(_narrowing(each))
    scans = list(_scans(unfiltered, table))
    used = {column for scan in scans for column in _texts(scan.get("Projections", []))}
    if len(scans) < count or not used - {""} <= set(columns):
        return joined
    return replace(joined, columns=[column for column in columns if column in used] or list(columns[:1]))


def _scans(plan: Plan, table: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    left = list(plan)
    while left:
        node = left.pop()
        left.extend(node.get("children", ()))
        info = node.get("extra_info", {})
        if _parts(info.get("Table", "")) == [part.lower() for part in table]:
            yield info


def _limit(plan: Plan) -> int | None:
    """Return how many rows a plan needs of its scan; None unless it is only a scan, a limit and projections."""
    limit = None
    while len(plan) == 1:
        node, info = plan[0], plan[0].get("extra_info", {})
        if node["name"] in ("LIMIT", "STREAMING_LIMIT") and str(info.get("Limit", "")).isdigit():
            limit = int(info["Limit"]) + int(info.get("Offset", 0))
        elif node["name"] == "SEQ_SCAN":
            return None if "Filters" in info else limit
        elif node["name"] != "PROJECTION":
            return None
        plan = node.get("children", ())
    return None


def _parts(name: str) -> list[str]:
    """Return the parts of a qualified name in which some parts are in quotes, in lower case."""
    return [(quoted or bare).replace('""', '"').lower() for quoted, bare in _NAME_PART.findall(name)]


def _narrowing(info: Mapping[str, Any]) -> Narrowing:
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for column, sign, value in _comparisons(_texts(info.get("Filters", []))):
        if sign in (">", ">=", "="):
            low[column] = max(low.get(column, 0), value + (sign == ">"))
        if sign in ("<", "<=", "="):
            high[column] = min(high.get(column, value), value - (sign == "<"))
    return Narrowing(None, low.get("seq"), high.get("seq"), low.get("time"), high.get("time"))


def _comparisons(filters: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the comparisons that all rows of a scan fulfil: column, sign and constant."""
    for text in filters:
        parts = text.removeprefix("(").removesuffix(")").split(" AND ") if " AND " in text else [text]
        matches = [_COMPARISON.fullmatch(part) for part in parts]
        for match in matches if all(matches) else ():
            assert match is not None
            if match["column"] == "seq" and match["seq"]:
                yield "seq", match["sign"], int(match["seq"])
            elif match["column"] == "time" and match["time"]:
                time = datetime.fromisoformat(match["time"]).replace(tzinfo=UTC)
                yield "time", match["sign"], (time - EPOCH) // MICROSECOND


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
