"""Fills the tables of the pages in `PAGES` from the results in docs/results.

    python performance_page.py

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; the rest of the page is not changed. A test compares
the page with the results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import typer

from fastflight_benchmark import machine, output, targets
from fastflight_benchmark.contenders import AIO, ASYNC, BARE, MODES, NAMESAKE_ASYNC, NAMESAKE_SYNC, SYNC
from fastflight_benchmark.report import batch_title, delay_title
from fastflight_benchmark.suites import beside
from fastflight_benchmark.suites.commands import suite as commands
from fastflight_benchmark.suites.flight import summary
from fastflight_benchmark.suites.sql import suite as sql
from fastflight_benchmark.targets import Judged

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
PAGES = (PAGE, DOCS / "concepts" / "mpremote.md", DOCS / "agent.md", DOCS / "sql.md")
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
ORDER = (SYNC, ASYNC, BARE, NAMESAKE_SYNC, NAMESAKE_ASYNC, AIO)
# The connections that the tables show; the CSVs have more.
SHOWN_CONNECTIONS = (1, 16)


class Results:
    """The stored results, by suite and part."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def frame(self, suite: str, part: str = "") -> pd.DataFrame:
        """Return the main table of a suite's result, or another part of it."""
        path = self._folder / f"{suite}.csv"
        return pd.read_csv(output.beside(path, part) if part else path)

    def described(self, suite: str) -> dict[str, object]:
        """Return the description of a result."""
        return output.described(self._folder / f"{suite}.csv")


def filled(page: str, results: Results, tables: Mapping[str, Callable[[Results], str]] | None = None) -> str:
    """Return the page with new tables. `KeyError` for an unknown table. Default: the tables of this page."""
    makers = TABLES if tables is None else tables
    return TABLE.sub(lambda found: f"{found[1]}{makers[found[2]](results)}\n{found[3]}", page)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; all columns but the first are aligned right."""
    ruled = "|" + "|".join("---" if place == 0 else "---:" for place in range(len(headings))) + "|"
    return "\n".join([_row(headings), ruled, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _machines(results: Results) -> str:
    lines = []
    for suite in ("flight", "requests"):
        description = results.described(suite)
        measured = description["machine"]
        assert isinstance(measured, Mapping)
        missing = description.get("missing") or "none"
        lines.append(
            f"- `{suite}`, `--runs {description['runs']}`: {machine.in_one_line(measured)}. Missing peers: {missing}."
        )
    return "\n".join(lines)


def _targets(results: Results) -> str:
    compared = summary.compare(results.frame("flight"))
    judged = [
        *(("flight", one) for one in targets.flight(compared, results.frame("flight", "ratios"))),
        *(("requests", one) for one in targets.requests(results.frame("requests", "ratios"))),
    ]
    return markdown_table(
        ("what", "target", "reached", "", "suite"),
        ((one.title, one.target, _reached(one), _verdict(one), f"`{suite}`") for suite, one in judged),
    )


def _reached(one: Judged) -> str:
    return "-" if one.reached is None else f"{one.reached:.3g}{one.unit}"


def _verdict(one: Judged) -> str:
    return "not measured" if one.met is None else "met" if one.met else "**missed**"


def _peers(results: Results) -> str:
    servers, ratios = results.frame("flight", "servers"), results.frame("flight", "ratios")
    rows = []
    for size in targets.BATCHES:
        cell = _free(servers, size)
        pairs = _free(ratios, size).set_index(["mode", "peer"])["median_ratio"]
        for name in _in_order(cell.index):
            own = [f"{pairs[mode, name]:.2f}" if (mode, name) in pairs.index else "-" for mode in MODES]
            rows.append(
                [
                    f"{batch_title(size)}, {name}",
                    f"{_float(cell, name, 'throughput_mbps'):,.0f}",
                    *own,
                    f"{1e3 * _float(cell, name, 'first_batch_seconds'):.1f}",
                    f"{_float(cell, name, 'messages'):,.0f}",
                    f"{_float(cell, name, 'server_cpu_seconds_per_gib'):.2f}",
                    f"{_float(cell, name, 'reader_cores'):.1f}",
                ]
            )
    headings = ("batch, server", "MiB/s", "sync by it", "async by it", "first row, ms", "messages", "CPU s/GiB")
    return markdown_table((*headings, "readers' cores"), rows)


def _free(frame: pd.DataFrame, size: int) -> pd.DataFrame:
    """Return the rows of one reader of the default table, without delay."""
    chosen = frame[
        (frame["variant"] == "default")
        & (frame["rows_per_batch"] == size)
        & (frame["delay_per_row"] == 0)
        & (frame["concurrent_requests"] == 1)
    ]
    return chosen if "peer" in chosen else chosen.set_index("mode")


def _float(frame: pd.DataFrame, row: str, column: str) -> float:
    return float(frame.at[row, column])  # type: ignore[arg-type]


def _in_order(names: Iterable[object]) -> list[str]:
    found = set(names)
    return [name for name in ORDER if name in found]


def _sweep(results: Results) -> str:
    compared = summary.compare(results.frame("flight")).sort_values(
        ["delay_per_row", "rows_per_batch", "concurrent_requests"]
    )
    rows = [
        [
            delay_title(float(cell["delay_per_row"])),
            batch_title(int(cell["rows_per_batch"])),
            f"{cell['concurrent_requests']}",
            f"{cell['sync_mbps']:,.1f}",
            f"{cell['async_mbps']:,.1f}",
            f"{cell['limit_mbps']:,.1f}",
            f"{cell['improvement']:+.1f} %",
        ]
        for cell in compared[compared["delay_per_row"] > 0].to_dict("records")
    ]
    return markdown_table(
        ("source", "batch", "readers", "sync MiB/s", "async MiB/s", "limit MiB/s", "async to sync"), rows
    )


def _claims(results: Results) -> str:
    servers = results.frame("flight", "servers")
    rows = []
    for delay in (1e-6, 1e-5):
        alone = servers[
            (servers["variant"] == "default")
            & (servers["delay_per_row"] == delay)
            & (servers["rows_per_batch"] == targets.LARGE)
            & (servers["concurrent_requests"] == 1)
        ].set_index("mode")
        rows.append(
            [
                delay_title(delay),
                f"{50 * 4 / delay / 2**20:.2f}",
                *(
                    f"{_float(alone, name, 'throughput_mbps'):.1f}" if name in alone.index else "-"
                    for name in ORDER[:-1]
                ),
            ]
        )
    return markdown_table(("source", "ceiling MiB/s", *ORDER[:-1]), rows)


def _requests(results: Results) -> str:
    frame = results.frame("requests")
    frame = frame[frame["connections"].isin(SHOWN_CONNECTIONS)]
    frame = frame.assign(place=frame["mode"].map({name: place for place, name in enumerate(ORDER)}))
    rows = [
        [
            f"{row['operation']}, {row['load']}, {row['connections']}",
            str(row["mode"]),
            f"{row['per_second']:,.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['server_cpu_us']:.0f}",
        ]
        for row in frame.sort_values(["operation", "load", "connections", "place"]).to_dict("records")
    ]
    return markdown_table(
        ("operation, load, connections", "server", "per second", "p50 ms", "p99 ms", "server CPU µs"), rows
    )


def _rates(results: Results) -> str:
    frame = results.frame("requests")
    rows = []
    for operation, of in frame.groupby("operation"):
        best = {str(row["mode"]): row for row in of.sort_values("per_second").to_dict("records")}
        for name in _in_order(best):
            row = best[name]
            rows.append([str(operation), name, f"{row['per_second']:,.0f}", f"{row['connections']}", str(row["load"])])
    return markdown_table(("operation", "server", "per second", "connections", "load"), rows)


TABLES: Mapping[str, Callable[[Results], str]] = {
    "machines": _machines,
    "targets": _targets,
    "peers": _peers,
    "sweep": _sweep,
    "claims": _claims,
    "requests": _requests,
    "rates": _rates,
    "commands": lambda results: commands.markdown(results.frame("commands")),
    "beside": lambda results: beside.markdown(results.frame("beside")),
    "sql": lambda results: sql.markdown(results.frame("sql", "ratios")),
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main() -> None:
    """Fill the tables of the documentation from docs/results."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), Results(DOCS / "results")), encoding="utf-8")
        typer.echo(page)


if __name__ == "__main__":
    app()
