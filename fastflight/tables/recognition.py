"""Recognises the rows that a device prints, by its first lines: JSON objects, `key=value` pairs, or cells of CSV.

Most of the lines must be rows. Pairs and CSV have a column of numbers, times or truth values: other text has commas and
colons, too. The sentences of a GPS are text: each kind of them has other columns. What is recognised says how lines are
read. The types of the columns are not fixed: they hold all values so far.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Self

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.tables.codec import TextOptions
from fastflight.tables.dialect import Dialect
from fastflight.tables.json_objects import parse_object
from fastflight.tables.key_values import PREFIX_KEYS, as_object, pairs_of
from fastflight.tables.kinds import Kind, is_value
from fastflight.tables.lines import LineFormat, LineParser
from fastflight.tables.shapes import Shape, joined, shapes_from_json
from fastflight.tables.sniffing import sniff

# Rows that show a table. Text may begin like one.
LEAST_ROWS = 3
# A sentence of NMEA 0183, with or without its checksum.
_GPS = re.compile(rb"[$!][A-Z]{2}[A-Z0-9]{3},[^*]*(?:\*[0-9A-Fa-f]{2})?").fullmatch
# Bytes of lines that are parsed together.
PARSED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Recognised:
    """How lines are read. `kinds`: what the values of each column are, as far as lines were passed to `learn`.

    `valued`: the columns whose values are no text in the first lines. They never become text: a cell that is text does
    not fit there. A row of a CSV table, or of pairs, has a value in one of them.
    """

    format: LineFormat
    dialect: Dialect | None = None
    valued: tuple[str, ...] = ()
    kinds: Mapping[str, Shape] = field(default_factory=dict)

    def learn(self, lines: Iterable[bytes]) -> Self:
        """Return the same with the kinds of these lines, too."""
        parser, kinds = self.parser(), self.kinds
        for some in in_blocks(lines, len):
            kinds = joined(self.kinds, parser.learn(some))
        kept = {name: Shape(kinds=kinds[name].kinds & ~Kind.TEXT) for name in self.valued if name in kinds}
        return replace(self, kinds={**kinds, **kept})

    def parser(self, taken: Collection[str] = ()) -> LineParser:
        """Return a parser whose types hold all values so far. No column has one of the names that are `taken`."""
        plausible = {"csv": self._is_row, "keys": self._has_value, "jsonl": None}[self.format]
        parser = LineParser(
            self.format, None, kinds=self.kinds, dialect=self.dialect, valued=self.valued, plausible=plausible
        )
        names = _unique(parser.schema.names, taken)
        parser.schema = pa.schema([each.with_name(name) for each, name in zip(parser.schema, names, strict=True)])
        return parser

    def _is_row(self, line: bytes) -> bool:
        """Whether one of the columns that have values has one in this CSV line, or all are empty."""
        assert self.dialect is not None
        if _numbers(self.dialect.delimiter, self.dialect.decimal)(line):
            return True
        cells = self._cells(line)
        held = [cell for name, cell in zip(self.dialect.names, cells, strict=False) if name in self.valued]
        return any(is_value(cell, self.dialect.decimal) for cell in held) or not any(cells)

    def _has_value(self, line: bytes) -> bool:
        """Whether one of the columns that have values is in this line of pairs."""
        return not (pairs_of(line) or {}).keys().isdisjoint(self.valued)

    def _cells(self, line: bytes) -> list[str]:
        assert self.dialect is not None
        return self.dialect.texts(line.decode(errors="replace"))

    def as_json(self) -> dict[str, Any]:
        """Return this as a JSON object, for `from_json`."""
        found: dict[str, Any] = {"format": self.format, "valued": self.valued}
        if (dialect := self.dialect) is not None:
            found["dialect"] = {key: getattr(dialect, key) for key in _DIALECT}
            found["dialect"]["headers"] = sorted(header.decode(errors="replace") for header in dialect.headers)
        return {**found, "kinds": {name: shape.as_json() for name, shape in self.kinds.items()}}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `as_json` has returned."""
        dialect = found.get("dialect")
        if dialect is not None:
            headers = frozenset(header.encode() for header in dialect["headers"])
            dialect = Dialect(**{**dialect, "names": tuple(dialect["names"]), "headers": headers})
        return cls(found["format"], dialect, tuple(found["valued"]), shapes_from_json(found["kinds"]))


_DIALECT = ("delimiter", "quote", "decimal", "comment", "trim", "names", "narrow")


def recognise(lines: Sequence[bytes]) -> Recognised | None:
    """Return how whole lines are read, the first ones that a device has printed; None if they are no table."""
    found = recognise_format(lines)
    return None if found is None else found.learn(lines)


def recognise_format(lines: Sequence[bytes]) -> Recognised | None:
    """As `recognise`, without the kinds of the columns, which take longer than the rest."""
    texts = [bare for line in lines if (bare := line.strip(b"\r\n")).strip()]
    objects = _objects(line.strip() for line in texts)
    if _are_most(len(objects), texts):
        return Recognised("jsonl", valued=_valued(objects))
    objects = _objects(row for line in texts if (row := as_object(line)) is not None)
    # A key of few lines, as of `OSError: 5`, does not make a line a row.
    often = min(LEAST_ROWS, 1 + len(objects) // 4)
    counts = Counter(name for each in objects for name in each if name not in PREFIX_KEYS)
    keys = tuple(name for name in _valued(objects) if counts[name] >= often)
    if keys and _are_most(sum(not keys_of.keys().isdisjoint(keys) for keys_of in objects), texts):
        return Recognised("keys", valued=keys)
    if _are_most(sum(_GPS(line.strip()) is not None for line in texts), texts):
        return None
    try:
        dialect = sniff(b"".join(line + b"\n" for line in texts), TextOptions())
    except DataError:
        return None
    rows = [dialect.texts(line.decode(errors="replace")) for line in texts if line.strip() not in dialect.headers]
    columns = zip(*(row for row in rows if len(row) == len(dialect.names)), strict=True)
    named = zip(dialect.names, columns, strict=False)
    valued = [name for name, cells in named if name and _are_values(cells, dialect.decimal)]
    if not valued or (dialect.delimiter == " " and len(valued) < len(dialect.names)):
        return None
    found = Recognised("csv", dialect, tuple(valued))
    return found if _are_most(sum(map(found._is_row, texts)), texts) else None


@lru_cache(16)
def _numbers(delimiter: str, decimal: str) -> Callable[[bytes], object]:
    """Return what matches a line of short numbers, as most are: its cells need no look."""
    number = rb"-?(?:0|[1-9][0-9]{0,8})(?:" + re.escape(decimal.encode()) + rb"[0-9]{1,6})?"
    return re.compile(number + rb"(?:" + re.escape(delimiter.encode()) + number + rb")*\r?").fullmatch


def _objects(rows: Iterable[bytes]) -> list[dict[str, Any]]:
    return [parsed[0] for row in rows if not isinstance(parsed := parse_object(row), str)]


def _valued(objects: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names whose values are mostly no text."""
    names = dict.fromkeys(name for each in objects for name in each)
    return tuple(name for name in names if _are_values([each[name] for each in objects if name in each]))


def _are_most(rows: int, lines: Sequence[bytes]) -> bool:
    return rows >= LEAST_ROWS and 2 * rows >= len(lines)


def _are_values(values: Sequence[Any], decimal: str = ".") -> bool:
    """Whether most of the values that are not empty are numbers, times or truth values."""
    held = [value for value in values if value not in ("", None)]
    fit = [is_value(each, decimal) if isinstance(each, str) else not isinstance(each, list | dict) for each in held]
    return 2 * sum(fit) > len(fit)


def in_blocks(lines: Iterable[Any], size: Any) -> Iterator[list[Any]]:
    """Yield lines together that have about `PARSED_BYTES`."""
    block: list[Any] = []
    total = 0
    for line in lines:
        block.append(line)
        total += size(line)
        if total >= PARSED_BYTES:
            yield block
            block, total = [], 0
    if block:
        yield block


def _unique(names: Iterable[str], taken: Collection[str]) -> list[str]:
    """Return names that differ by more than by case, which SQL does not tell apart."""
    used, unique = {*taken}, []
    for name in names:
        new = next(new for new in chain([name], (f"{name}_{n}" for n in range(2, 10**6))) if new.lower() not in used)
        used.add(new.lower())
        unique.append(new)
    return unique
