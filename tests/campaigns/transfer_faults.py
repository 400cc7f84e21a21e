"""Copies files to and from boards with injected faults. Each transfer must complete, or fail with an error of ours.

    python -m tests.campaigns.transfer_faults
    python -m tests.campaigns.transfer_faults --transfers 200 --seed 7
    python -m tests.campaigns.transfer_faults --only 85 --only 143      # repeat transfers by their numbers

Several boards are used at once, because most of a fault's time is waiting. Exit code 1: a transfer ended with wrong
bytes, with an error without a code, or never, or it left the board unusable.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fastflight_benchmark import ending, machine
from fastflight_benchmark.report import LOSS, NOISE, PIPE_COLUMNS, WIN, table
from tests.campaigns import result_files
from tests.campaigns.transfer_trial import BAD, COMPLETED, FAULTS, TYPED, Station, TransferCase, TransferOutcome, case

TRANSFERS = 1_000
BOARDS = 12
# Any fixed number: a campaign that cannot be repeated finds nothing that can be mended.
SEED = 1
COLUMNS = ["fault", "transfers", "struck", "completed", "typed", *BAD, "longest_seconds", "longest_next_seconds"]
RAW_COLUMNS = [
    "number",
    "fault",
    "specs",
    "struck",
    "operation",
    "path",
    "content",
    "size",
    "baud",
    "ring",
    "ended",
    "reason",
    "seconds",
    "next_seconds",
]
SHOWN_BAD = 10


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    transfers: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = TRANSFERS,
    seed: Annotated[int, typer.Option(metavar="N", help="Which campaign: decides all about each transfer.")] = SEED,
    boards: Annotated[int, typer.Option(min=1, metavar="N", help="How many boards at once.")] = BOARDS,
    only: Annotated[list[int] | None, typer.Option(metavar="NUMBER", help="Only this transfer; repeatable.")] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help=f"The CSV to write. Default: a new one in {result_files.RESULTS}."
        ),
    ] = None,
) -> None:
    """Carry out a campaign, and write the outcome of each transfer."""
    path = output_file or result_files.default_path("faults")
    result_files.prepare(path)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_COLUMNS)
    bad = carry_out(console, path, seed, only or range(transfers), boards)
    raise typer.Exit(1 if bad else 0)


def carry_out(console: Console, path: Path, seed: int, numbers: Sequence[int], boards: int = BOARDS) -> int:
    """Do the transfers `numbers` of the campaign `seed`, save and show them. Return how many ended badly."""
    boards = min(boards, len(numbers))
    console.print(f"{len(numbers)} transfers on {boards} simulated boards, campaign {seed}")
    description: dict[str, Any] = {
        "suite": "faults",
        "seed": seed,
        "transfers": len(numbers),
        "boards": boards,
        "machine": machine.describe(),
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("transfers", total=len(numbers))
        outcomes = campaign([case(seed, number) for number in numbers], boards, lambda: bar.advance(task))
    raw = pd.DataFrame([_row(outcome) for outcome in outcomes], columns=RAW_COLUMNS)
    result = summarize(raw)
    result_files.save(path, result, {"raw": raw}, description)
    show(console, result, raw)
    console.print(f"{machine.in_one_line(description['machine'])}\n{path}", style="dim", soft_wrap=True)
    return int(raw["ended"].isin(BAD).sum())


def campaign(
    cases: Sequence[TransferCase], boards: int, progress: Callable[[], None] = lambda: None
) -> list[TransferOutcome]:
    """Carry out `cases` on so many boards at once. Return the outcomes in the order of their numbers."""
    waiting = iter(cases)
    lock = threading.Lock()
    outcomes: list[TransferOutcome] = []

    def work(folder: Path, number: int) -> None:
        with Station(folder, number) as station:
            while True:
                with lock:
                    following = next(waiting, None)
                if following is None:
                    return
                outcome = station.carry_out(following)
                with lock:
                    outcomes.append(outcome)
                    progress()

    with tempfile.TemporaryDirectory(prefix="fastflight-faults-") as folder, ThreadPoolExecutor(boards) as threads:
        working = [threads.submit(work, Path(folder) / f"{number}", number) for number in range(boards)]
        try:
            for done in working:
                done.result()
        finally:
            # Interrupted, or a board broke down: each other one ends what it is about.
            with lock:
                waiting = iter(())
    return sorted(outcomes, key=lambda outcome: outcome.case.number)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `COLUMNS` for each fault, and one for all."""
    groups: Iterable[tuple[str, pd.DataFrame]] = [(fault, raw[raw["fault"] == fault]) for fault in FAULTS]
    rows = [
        {
            "fault": fault,
            "transfers": len(group),
            "struck": (group["struck"] != "").sum(),
            **{ended: (group["ended"] == ended).sum() for ended in (COMPLETED, TYPED, *BAD)},
            "longest_seconds": group["seconds"].max(),
            "longest_next_seconds": group["next_seconds"].max(),
        }
        for fault, group in [*groups, ("all", raw)]
        if len(group)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def show(console: Console, result: pd.DataFrame, raw: pd.DataFrame) -> None:
    """Show the table, and the numbers of transfers that ended badly."""
    shown = table(
        "Transfers by fault. Typed: failed with an error of ours, old file whole, and the next one completed",
        ("fault", "transfers", "struck", "completed", "typed", *BAD, "longest", "next one"),
    )
    for row in result.to_dict("records"):
        shown.add_row(
            row["fault"],
            *(str(row[name]) for name in ("transfers", "struck", COMPLETED, TYPED)),
            *(Text(str(row[name]), style=LOSS if row[name] else NOISE) for name in BAD),
            f"{row['longest_seconds']:.1f} s",
            f"{row['longest_next_seconds']:.1f} s",
        )
    console.print(shown)
    bad = raw[raw["ended"].isin(BAD)]
    for row in bad.head(SHOWN_BAD).to_dict("records"):
        console.print(
            Text(
                f"{row['number']}: {row['ended']}: {row['path']} {row['operation']} of {row['size']} bytes, "
                f"ring {row['ring']} at {row['baud']}, {row['specs'] or 'no fault'}: {row['reason']}",
                style=LOSS,
            )
        )
    verdict = f"{len(raw)} transfers, {len(bad)} wrong, untyped, hung or stuck"
    console.print(Text(verdict, style=LOSS if len(bad) else WIN))


def _row(outcome: TransferOutcome) -> dict[str, Any]:
    done = outcome.case
    return {
        "number": done.number,
        "fault": done.fault,
        "specs": " ".join(done.specs),
        "struck": " ".join(outcome.struck),
        "operation": done.operation,
        "path": done.path,
        "content": done.content,
        "size": done.size,
        "baud": outcome.baud,
        "ring": outcome.ring,
        "ended": outcome.ended,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "next_seconds": outcome.next_seconds,
    }


if __name__ == "__main__":
    ending.like_ctrl_c()
    app()
