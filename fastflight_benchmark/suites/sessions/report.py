"""Shows the result of the suite `sessions` on the screen, and whether the targets are met."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from rich.console import Console

from fastflight_benchmark.contenders import ASYNC
from fastflight_benchmark.report import Target, show_met, table
from fastflight_benchmark.suites.sessions.keeping import CHUNKS, LOG, RECORD, REPLAY
from fastflight_benchmark.suites.sessions.rows import BOARDS, KEPT, STALLED

# The targets of the project.
KEPT_BOARDS, KEPT_CORES, KEPT_MB, KEPT_THREADS = 1000, 1.5, 1024, 32
TIMED_BOARDS, P50_MS, P99_MS = 100, 5.0, 50.0
LOG_MBPS = {RECORD: 50.0, REPLAY: 300.0}
LOG_CONTENT = next(iter(CHUNKS))


def bad(cells: pd.DataFrame) -> pd.Series:
    """Return which cells failed, lost rows without a gap, or received or recorded wrong rows."""
    return (cells["error"] != "") | (cells[["missing", "wrong", "kept_wrong"]].fillna(0) != 0).any(axis=1)


def show(console: Console, result: pd.DataFrame, log: pd.DataFrame, *, judged: bool) -> None:
    """Show the cells, the log and, if `judged`, whether the targets are met."""
    grid = table(
        "Live sessions; received: of the rows printed during the session; ms from the board to the reader",
        ("part", "boards", "readers", "path", "recorded", "received", "p50 ms", "p99 ms", "server cores", "load cores"),
        "MiB",
        "threads",
        "idle",
    )
    for row in result.to_dict("records"):
        grid.add_row(
            row["part"] + (" (that reader)" if row["stall_seconds"] else ""),
            f"{row['boards']}",
            f"{row['readers']}",
            row["mode"],
            f"{row['kept_rows']:,.0f}" if row["recorded"] else "",
            f"{row['received']:,.0f} of {row['expected']:,.0f}" if not row["failed"] else "failed",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
            f"{row['server_cores']:.2f}",
            f"{row['boards_cores'] + row['readers_cores']:.2f}",
            f"{row['server_mb']:.0f}",
            f"{row['threads']:.0f}",
            f"{row['idle_percent']:.0f} %",
        )
    console.print(grid)
    for row in result[result["part"] == STALLED].to_dict("records"):
        reader = "the stalled reader" if row["stall_seconds"] else f"the {row['readers']:.0f} beside it"
        console.print(
            f"{row['mode']}, {reader}: {row['gaps']:.0f} gaps that report {row['told']:.0f} chunks, "
            f"{row['missing']:.0f} missing without a gap, {row['wrong']:.0f} wrong",
            highlight=False,
        )
    for (content, work), group in log.groupby(["content", "work"], sort=False):
        rates = group.groupby("server", sort=False)["mbps"].median()
        each = ", ".join(f"{name} {rate:.0f} MB/s" for name, rate in rates.items())
        console.print(f"{work}, {content}: {each}", highlight=False)
    console.print()
    if judged:
        show_met(console, targets(result, log))


def targets(result: pd.DataFrame, log: pd.DataFrame) -> Iterator[Target]:
    """Yield every target whose cell was measured. The targets of a failed cell are missed."""
    whole = result[result["mode"] == ASYNC]
    for row in _each(whole[whole["failed"] > 0]):
        yield Target(f"{row['part']}, {row['boards']} boards, {row['readers']} readers: {row['note']}", False)
    whole = whole[whole["failed"] == 0]
    for row in _each(whole[(whole["part"] == KEPT) & (whole["boards"] == KEPT_BOARDS)]):
        name = f"{KEPT_BOARDS} boards recorded, {row['readers']} of them read"
        rows = int(row["kept_rows"] - row["printed"])
        yield Target(f"{name}: {rows} rows more or less than printed, 0", rows == 0 and row["kept_wrong"] == 0)
        yield Target(f"{name}: {row['server_cores']:.2f} cores, under {KEPT_CORES}", row["server_cores"] < KEPT_CORES)
        yield Target(f"{name}: {row['server_mb']:.0f} MiB, under {KEPT_MB}", row["server_mb"] < KEPT_MB)
        threads = row["threads"] - row["readers"]
        text = f"{name}: {threads:.0f} threads beside one per session, under {KEPT_THREADS}"
        yield Target(text, bool(threads < KEPT_THREADS))
    timed = whole[(whole["part"] == BOARDS) & (whole["boards"] == TIMED_BOARDS) & ~whole["recorded"].astype(bool)]
    for row in _each(timed):
        name = f"line to client, {TIMED_BOARDS} boards"
        yield Target(f"{name}: {row['p50_ms']:.1f} ms median, under {P50_MS:g}", row["p50_ms"] < P50_MS)
        yield Target(f"{name}: {row['p99_ms']:.1f} ms p99, under {P99_MS:g}", row["p99_ms"] < P99_MS)
    for work, least in LOG_MBPS.items():
        at = log[(log["server"] == LOG) & (log["work"] == work) & (log["content"] == LOG_CONTENT)]
        rate = float(at["mbps"].median())
        yield Target(f"{work}, {LOG_CONTENT}: {rate:.0f} MB/s, at least {least:g}", rate >= least)
    for row in _each(whole[whole["part"] == STALLED]):
        reader = "stalled" if row["stall_seconds"] else "beside it"
        clean = row["missing"] == 0 and row["wrong"] == 0
        lost = f"{row['told']:.0f} chunks in gaps, {row['missing']:.0f} missing, {row['wrong']:.0f} wrong"
        yield Target(f"{reader}: {lost}", bool(clean and (row["stall_seconds"] or row["gaps"] == 0)))


def _each(cells: pd.DataFrame) -> Iterator[pd.Series]:
    for _, row in cells.iterrows():
        yield row
