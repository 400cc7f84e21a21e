"""The options of a run, and how every suite uses them: it describes the run, chooses cells and shows progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fastflight_benchmark import machine
from fastflight_benchmark.flame import graph_of, profiled
from fastflight_benchmark.selection import Labels, Selection


class Labelled(Protocol):
    """A step of a suite whose cells can be chosen."""

    @property
    def labels(self) -> Labels:
        """The labels that `--only` compares."""


Step = TypeVar("Step", bound=Labelled)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    `server` is the URL of a server that may already run. `output` is the main CSV; the other files are beside it.
    `only` chooses cells and `profile` asks for a flame graph of the server, in the suites that support them.
    """

    server: str
    quick: bool
    runs: int
    output: Path
    console: Console
    only: Selection = Selection()
    profile: bool = False
    # Numbers of devices, viewers and servers, by those names, for the suite `cluster`.
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print a line as it is, without markup."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def describe(self, suite: str, scope: Any, **more: Any) -> dict[str, Any]:
        """Return the content of the JSON file: the run and the machine. `scope` is a dataclass or a dict."""
        described = asdict(scope) if is_dataclass(scope) and not isinstance(scope, type) else scope
        run = {"suite": suite, "quick": self.quick, "runs": self.runs, "profiled": self.profile, "scope": described}
        only = {key: sorted(values) for key, values in self.only.wanted.items()}
        return run | {"only": only} | more | {"machine": machine.describe()}

    def chosen(self, planned: Iterable[Step]) -> list[Step]:
        """Return the planned steps that `--only` chooses. `RequestError` if there are none."""
        steps = list(planned)
        return self.only.of(steps, [step.labels for step in steps])

    @contextlib.contextmanager
    def progress(self, total: int | None = None) -> Iterator[Callable[[str], None]]:
        """Show a progress bar while the context lasts. Call the yielded function at each step, with a text about it."""
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(TextColumn("{task.description}"), *columns, console=self.console, transient=True) as bar:
            task = bar.add_task("starting", total=total)
            yield lambda text: bar.update(task, advance=1, description=text)

    def profiled(self, pid: int | None, run: int) -> contextlib.AbstractContextManager[None]:
        """Record a flame graph of a run's server while the context lasts, if `--profile` was given."""
        return profiled(pid, graph_of(self.output, run), self.say) if self.profile else contextlib.nullcontext()
