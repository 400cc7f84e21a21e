"""A result: rows of figures, and what describes the run and the machine. As JSON it is complete; the CSV has medians.

A row has the figures of one contender in one cell for one measure, one for each round. Values with the same index in
the rows of a cell were measured in the same round, so their ratio is free of drift. None: a round without a figure.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, TypeAlias

from fastflight.errors import DataError

HERE = Path(__file__).parent
# In a checkout, beside the scripts. If they are installed, results do not belong among the packages.
RESULTS = HERE / "results" if (HERE.parent / "pyproject.toml").is_file() else Path("results")
# Significant digits of a figure. More would claim a precision that was not measured.
DIGITS = 6
MORE, LESS, NEUTRAL = "more", "less", ""
Label: TypeAlias = str | int | float


@dataclass(slots=True)
class Row:
    """The figures of `contender` in `cell` for `measure`, by round. `better` is `MORE`, `LESS` or `NEUTRAL`."""

    cell: dict[str, Label]
    contender: str
    measure: str
    unit: str
    better: str
    values: list[float | None] = field(default_factory=list)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes a row the same one in two results."""
        return (*sorted(self.cell.items()), self.contender, self.measure)

    @property
    def known(self) -> list[float]:
        """The figures that were measured."""
        return [value for value in self.values if value is not None]

    @property
    def median(self) -> float:
        return median(self.known)

    def put(self, round_: int, value: float) -> None:
        """Set the figure of a round; rounds begin at 1."""
        self.values += [None] * (round_ - len(self.values))
        self.values[round_ - 1] = float(f"{value:.{DIGITS}g}")


def ratios(ours: Row, theirs: Row) -> list[float]:
    """Return ours by theirs in each round that has both."""
    pairs = zip(ours.values, theirs.values, strict=False)
    return [one / other for one, other in pairs if one is not None and other]


def difference(sync: Row, other: Row) -> tuple[float, float]:
    """Return in percent how much faster async is on average, and the standard deviation of the runs' difference."""
    mean = fmean(sync.known)
    spread = math.hypot(*(stdev(row.known) if len(row.known) > 1 else 0.0 for row in (sync, other)))
    return 100 * (fmean(other.known) / mean - 1), 100 * spread / mean


@dataclass(slots=True)
class Result:
    """The description and the rows of a run."""

    description: Mapping[str, Any]
    rows: Sequence[Row]

    def of(self, measure: str, **labels: Label) -> list[Row]:
        """Return the rows of a measure whose cell, or contender, has these labels."""
        wanted = labels.items()
        return [
            row
            for row in self.rows
            if row.measure == measure and wanted <= {**row.cell, "contender": row.contender}.items()
        ]

    def cells(self, measure: str, **labels: Label) -> dict[tuple[tuple[str, Label], ...], dict[str, Row]]:
        """Return, by cell, the row of each contender."""
        found: dict[tuple[tuple[str, Label], ...], dict[str, Row]] = {}
        for row in self.of(measure, **labels):
            found.setdefault(tuple(row.cell.items()), {})[row.contender] = row
        return found

    def by_cell(self) -> dict[tuple[object, ...], dict[str, Row]]:
        """Return the rows by cell and measure, and then by contender."""
        found: dict[tuple[object, ...], dict[str, Row]] = {}
        for row in self.rows:
            found.setdefault((*row.cell.items(), row.measure), {})[row.contender] = row
        return found

    def compared(self) -> Iterator[tuple[Row, Row | None]]:
        """Yield each row, and with it the row of the reference in its cell, unless it is the reference itself."""
        references = self.description.get("references", ())
        for by_contender in self.by_cell().values():
            name = next((name for name in references if name in by_contender), None)
            for contender, row in by_contender.items():
                yield row, None if name in (None, contender) else by_contender[str(name)]


def default_path(name: str) -> Path:
    """Return a new path in `RESULTS`."""
    return RESULTS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}.json"


def newest(suite: str) -> Path | None:
    """Return the newest result of a suite in `RESULTS`."""
    return max(RESULTS.glob(f"{suite}-*.json"), key=lambda path: path.stat().st_mtime, default=None)


def prepare(path: Path) -> None:
    """Make the folder of a result. `OSError` if the result could not be written there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def save(path: Path, result: Result) -> None:
    """Write the result as JSON, one row a line, and beside it a CSV with the median of each row."""
    description = json.dumps(result.description, indent=1)
    rows = ",\n".join(json.dumps(asdict(row)) for row in result.rows)
    path.with_suffix(".json").write_text(f'{{"description": {description},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")
    labels = list(dict.fromkeys(label for row in result.rows for label in row.cell))
    with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        figures = ("contender", "measure", "unit", "median", "lowest", "highest", "count", "reference", "ratio")
        table.writerow([*labels, *figures])
        for row, reference in result.compared():
            pairs = [] if reference is None else ratios(row, reference)
            table.writerow(
                [
                    *(row.cell.get(label, "") for label in labels),
                    *(row.contender, row.measure, row.unit),
                    *(row.median, min(row.known), max(row.known), len(row.known)),
                    *((reference.contender, f"{median(pairs):.4g}") if reference and pairs else ("", "")),
                ]
            )


def load(path: Path) -> Result:
    """Return the result at `path`. `DataError` if it is none."""
    try:
        content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        rows = [Row(**row) for row in content["rows"]]
        if not isinstance(content["description"]["suite"], str) or not all(row.known for row in rows):
            raise TypeError("a row without figures")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError("is not a result of run_benchmark.py", where=str(path), hint="Measure again") from error
    return Result(content["description"], rows)
