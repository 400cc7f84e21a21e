"""The engine of all suites: figures become rows, and rows become a table, a CSV and a JSON file.

A suite is a module with a `SUITE`. Its `run` gets a `Bench`, and calls `Bench.measure` for each *cell* (a combination
of labels, such as rows in a batch and clients at once) with the *contenders* (a server, a tool, a path). In a round
every contender is measured once, one directly after the other, in an order that is reversed with each round, so that
drift affects all of them. Ratios are medians of the ratios of one round.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fastflight.errors import FastFlightError, ProtocolError, RequestError
from fastflight_benchmark.result import LESS, MORE, NEUTRAL, Label, Result, Row

__all__ = [
    "LESS",
    "MIB",
    "MORE",
    "NEUTRAL",
    "WARM_UP",
    "Bench",
    "Contender",
    "Figures",
    "Measure",
    "Suite",
    "WrongPath",
    "integers",
    "overridden",
]

Scope = TypeVar("Scope")
T = TypeVar("T")
# Figures by the names of measures, with `_` for a space; NaN is left out.
Figures: TypeAlias = Mapping[str, float]
Contender: TypeAlias = Callable[[], Figures]
SERVER = "server"
MIB = 2**20
WARM_UP = 0


class WrongPath(ProtocolError):
    """A server took another path than requested, so the result would have the wrong name. It ends the run."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The unit of a figure, and whether `MORE` or `LESS` is better. `NEUTRAL` figures are never compared."""

    unit: str
    better: str = NEUTRAL


@dataclass(frozen=True, slots=True)
class Suite:
    """What a suite measures.

    `ours` are the contenders of this project, which `--compare` judges. In the table, each contender is compared with
    the first of `references` that was measured in its cell, by the first measure of the cell that is not neutral.
    """

    name: str
    title: str
    measures: Mapping[str, Measure]
    ours: Sequence[str]
    references: Sequence[str]
    run: Callable[[Bench], None]


@dataclass(slots=True)
class Bench:
    """One run of a suite, with the options of the command line. `say` prints a line as it is."""

    suite: Suite
    console: Console
    server: str = ""
    quick: bool = False
    runs: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Further facts for the JSON file: sizes, versions of peers, and why a peer is missing.
    facts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _rows: dict[tuple[object, ...], Row] = field(default_factory=dict)
    _seen: dict[str, set[str]] = field(default_factory=dict)
    # Shows what is measured now; without a text, that there is one more figure.
    _step: Callable[[str], None] = lambda text: None

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def scope(self, full: Scope, quick: Scope) -> Scope:
        """Return the sizes of this run: those of the suite, with the values of `--set`."""
        chosen = overridden(quick if self.quick else full, self.settings)
        self.facts["scope"] = {each.name: getattr(chosen, each.name) for each in fields(chosen)}  # type: ignore[arg-type]
        return chosen

    def rounds(self, each: int = 1, run: int | None = None) -> range:
        """Return the numbers of all rounds, or those of one run, if a run has `each`."""
        return range(1, self.runs * each + 1) if run is None else range((run - 1) * each + 1, run * each + 1)

    def order(self, contenders: Sequence[T], round_: int) -> Sequence[T]:
        """Return the contenders in the order of a round."""
        return contenders if round_ % 2 else contenders[::-1]

    def wants(self, cell: Mapping[str, Label], contender: str) -> bool:
        """Whether `--only` chooses this cell and contender, and the contender is not missing. Say what comes next."""
        labels = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in cell.items()}
        labels[SERVER] = contender
        for key, value in labels.items():
            self._seen.setdefault(key, set()).add(value)
        chosen = contender not in self.missing and all(labels.get(key) in values for key, values in self.only.items())
        if chosen:
            self._step(", ".join(f"{key} {value}" for key, value in labels.items()))
        return chosen

    def measure(
        self,
        cell: Mapping[str, Label],
        contenders: Mapping[str, Contender],
        rounds: Iterable[int],
        warm_up: bool = False,
    ) -> None:
        """Measure the chosen contenders of a cell in turns, in each round. With `warm_up`, once more before."""
        chosen = [name for name in contenders if self.wants(cell, name)]
        for round_ in (WARM_UP, *rounds) if warm_up else rounds:
            for name in self.order(chosen, round_):
                with self.attempt(cell, name):
                    figures = contenders[name]()
                    if round_ != WARM_UP:
                        self.add(cell, name, round_, **figures)

    def add(self, cell: Mapping[str, Label], contender: str, round_: int, **figures: float) -> None:
        """Keep the figures of a contender in a round."""
        for name, value in figures.items():
            if math.isnan(value):
                continue
            name = name.replace("_", " ")
            measure = self.suite.measures[name]
            key = (*cell.items(), contender, name)
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = Row(dict(cell), contender, name, measure.unit, measure.better)
            row.put(round_, value)
            self._step("")

    def known(self, cell: Mapping[str, Label], contender: str, measure: str) -> Sequence[float]:
        """Return the figures so far."""
        row = self._rows.get((*cell.items(), contender, measure))
        return [] if row is None else row.known

    def fail(self, where: str, error: object) -> None:
        """Note a failed measurement; the others go on, and the exit code will be 1."""
        self.errors.append(f"{where}: {error}")

    @contextlib.contextmanager
    def attempt(self, cell: Mapping[str, Label], contender: str) -> Iterator[None]:
        """Note an error of the block as a failed measurement of this contender."""
        try:
            yield
        except WrongPath:
            raise
        except (FastFlightError, OSError, pa.ArrowException) as error:
            self.fail(f"{contender}, {', '.join(f'{key} {value}' for key, value in cell.items())}", error)

    @contextlib.contextmanager
    def progress(self) -> Iterator[None]:
        """Show what is measured while the context lasts."""
        columns = (TextColumn("{task.completed} figures"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.description}"), console=self.console, transient=True) as bar:
            task = bar.add_task("starting", total=None)
            self._step = lambda text: bar.update(task, description=text) if text else bar.advance(task)
            yield

    def result(self, machine: Mapping[str, Any]) -> Result:
        """Return the result. `RequestError` if `--only` chose nothing. Say which of its keys and values no cell has."""
        problems = []
        for key, values in self.only.items():
            if key not in self._seen:
                hint = f"Keys: {', '.join(self._seen)}"
                problems.append(RequestError(f"no cell has {key!r}", where="--only", hint=hint))
            elif unknown := sorted(values - self._seen[key]):
                hint = f"Use one of: {', '.join(sorted(self._seen[key]))}"
                problems.append(RequestError(f"no cell has {key}={unknown[0]}", where="--only", hint=hint))
        if not self._rows and not self.errors:
            nothing = RequestError(
                "no cell was measured", where=self.suite.name, hint="Choose other values with --only"
            )
            raise (*problems, nothing)[0]
        for problem in problems:
            self.say(str(problem))
        only = {key: sorted(values) for key, values in self.only.items()}
        description = {
            "suite": self.suite.name,
            "quick": self.quick,
            "runs": self.runs,
            "only": only,
            "ours": list(self.suite.ours),
            "references": list(self.suite.references),
            "missing": self.missing,
            "errors": self.errors,
            **self.facts,
            "machine": dict(machine),
        }
        return Result(description, list(self._rows.values()))


def overridden(scope: Scope, settings: Mapping[str, str]) -> Scope:
    """Return `scope`, a dataclass of numbers and tuples of numbers, with other values."""
    known = {each.name: getattr(scope, each.name) for each in fields(scope)}  # type: ignore[arg-type]
    for name, text in settings.items():
        if name not in known:
            raise RequestError(f"no size is named {name!r}", where="--set", hint=f"Use one of: {', '.join(known)}")
        old = known[name]
        kind = type(old[0]) if isinstance(old, tuple) else type(old)
        try:
            values = tuple(kind(word) for word in text.split(","))
        except ValueError:
            raise RequestError(f"{name}={text} is not a number", where="--set", hint="As in --set name=1,16") from None
        if any(value < 0 for value in values) or not isinstance(old, tuple) and len(values) != 1:
            raise RequestError(f"{name}={text} is not possible", where="--set", hint=f"The suite has {name}={old}")
        known[name] = values if isinstance(old, tuple) else values[0]
    return replace(scope, **known)  # type: ignore[type-var]


def integers(option: str, text: str | None, least: int, most: int) -> tuple[int, ...]:
    """Return the numbers in `text` without duplicates; none without text. `RequestError` if one is out of range."""
    numbers: dict[int, None] = {}
    for word in () if text is None else text.split(","):
        try:
            number = int(word)
        except ValueError:
            raise RequestError(f"{word!r} is not a whole number", where=option, hint="As in 40,1000") from None
        if not least <= number <= most:
            raise RequestError(f"{number} is not between {least} and {most}", where=option)
        numbers[number] = None
    return tuple(numbers)
