"""Parses lines of live output into rows, each line by itself.

A `LineParser` has a schema, declared or of `recognition`, and takes whole lines from anywhere in a stream. It returns
the rows of the lines that hold a CSV row, a JSON object or `key=value` pairs (`key_values`, which become such an
object), and says which lines they come from. CSV lines have the
columns of the schema in its order, separated by commas unless `TextOptions` name another delimiter. A header is not
needed; header lines are skipped (a restarted board prints one again), and so are blank lines. A quoted cell must end on
its line, so that no line changes the meaning of another.

A cell that does not fit is null, and counted. A CSV line of which nothing fits is no row: boards print text as well.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from fastflight.tables.bare import empty
from fastflight.tables.casting import readable_schema
from fastflight.tables.codec import Layout, TextOptions
from fastflight.tables.csv import CsvGrammar
from fastflight.tables.dialect import Dialect
from fastflight.tables.jsonl import JsonGrammar
from fastflight.tables.key_values import as_object, pairs_of
from fastflight.tables.rows import RowBlock
from fastflight.tables.schemas import schema_from_names
from fastflight.tables.shapes import Shape
from fastflight.tables.summary import ReadSummary
from fastflight.tables.writing import CsvWriter

LineFormat = Literal["csv", "jsonl", "keys"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of some lines. Row `i` comes from line `lines[i]`. `refused` holds the other lines, with a reason each.

    Lines are given by their index. Blank lines and headers are in neither list.
    """

    rows: pa.RecordBatch
    lines: list[int]
    refused: list[tuple[int, str]]


class LineParser:
    """Parses lines into rows of `schema`. `RequestError` for a schema that the format cannot hold.

    Without a schema, the types hold values of these `kinds`, CSV lines are written as `dialect` says, and the columns
    in `valued` never become text. A line that is not `plausible` is no row. `summary` counts the cells that became
    null. Lines that are no rows are returned, and not counted.
    """

    def __init__(
        self,
        format: LineFormat,
        schema: Mapping[str, str] | None,
        text: TextOptions | None = None,
        *,
        kinds: Mapping[str, Shape] | None = None,
        dialect: Dialect | None = None,
        valued: Collection[str] = (),
        plausible: Callable[[bytes], bool] | None = None,
    ) -> None:
        options = text or TextOptions()
        layout = Layout("jsonl" if format == "keys" else format, schema=schema, text=options, kinds=kinds)
        self.summary = ReadSummary()
        self._is_csv = format == "csv"
        self._has_pairs = format == "keys"
        self._plausible = plausible
        # The lines that are skipped here, and not by the grammar, so that each row has its line.
        self._headers = frozenset[bytes]()
        self._comment = (options.comment or "").encode()
        self._grammar: CsvGrammar | JsonGrammar
        if self._is_csv:
            if schema is not None:
                readable_schema(layout)
            dialect = dialect or _dialect(tuple(schema or ()), options)
            self._headers, self._comment = dialect.headers, (dialect.comment or "").encode()
            self._grammar = CsvGrammar(layout, replace(dialect, comment=None, headers=frozenset()), valued)
            self._quote = dialect.quote.encode()
            self._whole_row = re.compile(_whole_row(re.escape(dialect.delimiter.encode()), re.escape(self._quote)))
        else:
            self._grammar = JsonGrammar(layout)
        if schema is not None:
            self.schema = schema_from_names(schema)
        else:
            self._grammar.learned()
            self.schema = self._grammar.schema or pa.schema([])

    def learn(self, lines: Sequence[bytes]) -> Mapping[str, Shape]:
        """Return what the values of all lines so far are that were passed to this method. They have about 1 MiB."""
        rows = [self._row(bare) for line in lines if self._is_row(0, bare := line.strip(b"\r\n"), [])]
        self._grammar.learn(RowBlock(0, b"".join(row + b"\n" for row in rows)), ReadSummary())
        return self._grammar.shapes()

    def parse(self, lines: Sequence[bytes]) -> Parsed:
        """Parse `lines`, each of which has no line feed but possibly one at its end.

        A carriage return before a line is not part of it: some programs end lines with LF and CR, in this order.
        """
        refused: list[tuple[int, str]] = []
        bare = [line.strip(b"\r\n") for line in lines]
        candidates = [index for index, line in enumerate(bare) if self._is_row(index, line, refused)]
        pieces = [self._row(bare[index]) + b"\n" for index in candidates]
        starts = list(accumulate(map(len, pieces), initial=0))
        found = _Findings()
        batches = self._grammar.read(RowBlock(0, b"".join(pieces)), found) if pieces else []
        rows = empty(self.schema) if not batches else batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        reasons = {bisect_right(starts, offset) - 1: reason for offset, reason in found.rejections}
        accepted = [place for place in range(len(pieces)) if place not in reasons]
        if self._is_csv and found.null_cells:
            noise = self._noise(rows, [pieces[place] for place in accepted], found)
            reasons |= {accepted[row]: reason for row, reason in noise.items()}
            rows = rows.filter(pa.array([row not in noise for row in range(rows.num_rows)], pa.bool_()))
            accepted = [place for place in accepted if place not in reasons]
        for name, cells in found.null_cells.items():
            if cells:
                self.summary.add_null_cells(name, cells, found.null_cell_reasons[name])
        refused += [(candidates[place], reason) for place, reason in reasons.items()]
        return Parsed(rows, [candidates[place] for place in accepted], sorted(refused))

    def _row(self, line: bytes) -> bytes:
        """Return a line as the grammar reads it."""
        return as_object(line) or b"" if self._has_pairs else line

    def _is_row(self, index: int, line: bytes, refused: list[tuple[int, str]]) -> bool:
        if not line.strip() or line in self._headers or (self._comment and line.startswith(self._comment)):
            return False
        if self._is_csv and self._quote in line and not self._whole_row.fullmatch(line):
            refused.append((index, "a quote is not closed within the line, or text follows it"))
            return False
        if self._has_pairs and pairs_of(line) is None:
            refused.append((index, "not all of the line is key=value pairs"))
            return False
        if self._plausible is not None and not self._plausible(line):
            refused.append((index, "no value where the first lines have values"))
            return False
        return True

    def _noise(self, rows: pa.RecordBatch, pieces: Sequence[bytes], found: ReadSummary) -> dict[int, str]:
        """Return the rows of which nothing fits, with a reason each, and take their cells out of the counts."""
        noise: dict[int, str] = {}
        for row in pc.indices_nonzero(reduce(pc.and_, map(pc.is_null, rows.columns))).to_pylist():
            alone = ReadSummary()
            self._grammar.read(RowBlock(0, pieces[row]), alone)
            if alone.null_cells:
                noise[row] = next(iter(alone.null_cell_reasons.values()))
            for name, cells in alone.null_cells.items():
                found.null_cells[name] -= cells
        return noise


def _dialect(names: tuple[str, ...], options: TextOptions) -> Dialect:
    """Return how CSV lines with columns of these names are written."""
    delimiter = options.delimiter or ","
    header = CsvWriter(Layout("csv"), pa.schema([(name, pa.string()) for name in names])).begin()
    return Dialect(
        delimiter,
        decimal=options.decimal or ".",
        comment=options.comment,
        trim=delimiter == " ",
        names=names,
        headers=frozenset([header.strip().replace(b",", delimiter.encode())]),
    )


def _whole_row(delimiter: bytes, quote: bytes) -> bytes:
    cell = rb"(?:" + quote + rb"(?:[^" + quote + rb"]++|" + quote * 2 + rb")*+" + quote
    cell += rb"|(?!" + quote + rb")[^" + delimiter + rb"]*+)"
    return cell + rb"(?:" + delimiter + cell + rb")*+"


class _Findings(ReadSummary):
    """Holds the place and reason of every rejected row."""

    def __init__(self) -> None:
        super().__init__()
        self.rejections: list[tuple[int, str]] = []

    def reject(self, offset: int, reason: str) -> None:
        self.rejections.append((offset, reason))
