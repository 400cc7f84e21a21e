"""Figures become rows, rows a summary, and the summary verdicts."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from fastflight_benchmark.suites.bridge import idle, report, rows, traffic, visits, whole
from fastflight_benchmark.suites.bridge.connect import RESUME
from fastflight_benchmark.suites.bridge.rows import Row


def visit(seconds: float, number: int = 1, **other: object) -> Row:
    row = Row(rows.CONNECT, "fastflight", "raw", "board", visits.SYNC, RESUME, "", number, rows.SECONDS, value=seconds)
    return Row(**{name: getattr(row, name) for name in rows.COLUMNS} | other)


def test_a_summary_has_the_median_and_counts_failures_apart() -> None:
    raw = rows.frame(
        [
            visit(0.004),
            visit(0.002, 2),
            visit(0.009, 3),
            visit(float("nan"), 4, error="the device closed the line"),
            visit(float("nan"), 0, server="socat", error="not installed", missing=True),
        ]
    )
    ours, theirs = rows.summarize(raw).to_dict("records")
    assert (ours["count"], ours["median"], ours["lowest"], ours["highest"]) == (3, 0.004, 0.002, 0.009)
    assert (ours["failed"], ours["note"]) == (1, "the device closed the line")
    assert (theirs["count"], theirs["failed"], theirs["note"]) == (0, 0, "not installed")


def summary(*found: Row) -> pd.DataFrame:
    return rows.summarize(rows.frame(found))


def bulk(server: str, device: str, rate: float) -> Row:
    return Row(rows.BULK, server, "rfc2217", device, traffic.BARE, "up", "0xFF", 1, rows.RATE, rate)


def added(seconds: float) -> Row:
    return Row(
        rows.ROUND_TRIP, "fastflight", "raw", "socket", traffic.BARE, traffic.ADDED, "", 1, rows.SECONDS, seconds
    )


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (visit(0.0079), [True]),
        (visit(0.0081), [False]),
        (added(0.0004), [True, True]),
        (added(0.0006), [False, True]),
        (added(0.0021), [False, False]),
        (bulk("fastflight", "socket", 101.0), [True]),
        (bulk("fastflight", "socket", 99.0), [False]),
        (Row(rows.WHOLE, "fastflight", "raw", "socket", "fastflight", whole.WRONG, "hard", 1, rows.BYTES, 0.0), [True]),
        (
            Row(rows.WHOLE, "fastflight", "raw", "socket", "fastflight", whole.WRONG, "hard", 1, rows.BYTES, 1.0),
            [False],
        ),
        (Row(rows.IDLE, "fastflight", "raw", "socket", traffic.BARE, idle.CPU, "", 1, rows.PERCENT, 0.6), [False]),
        (
            Row(rows.IDLE, "fastflight", "raw", "socket", traffic.BARE, idle.WAKE_UPS, "", 1, rows.PER_SECOND, 10.0),
            [False],
        ),
    ],
)
def test_a_target_is_met_or_missed_by_its_figure(row: Row, met: list[bool]) -> None:
    assert [target.met for target in report.targets(summary(row))] == met


def test_times_port_manager_are_those_of_the_same_content() -> None:
    found = summary(bulk("PortManager", "terminal", 2.0), bulk("fastflight", "terminal", 30.0))
    assert [(target.text, target.met) for target in report.targets(found)] == [
        ("0xFF up, terminal: 15.0 times PortManager, at least 10", True)
    ]


def test_what_was_not_measured_is_not_judged_and_what_failed_is_missed() -> None:
    assert list(report.targets(summary(visit(float("nan"), error="not installed", missing=True)))) == []
    for found in ([visit(float("nan"), error="gone")], [visit(0.001), visit(float("nan"), 2, error="gone")]):
        (target,) = report.targets(summary(*found))
        assert target.text.endswith("; 1 failed") and not target.met


def test_a_socket_beside_a_terminal_is_said_to_be() -> None:
    found = summary(bulk("PortManager", "terminal", 2.0), bulk("fastflight", "socket", 300.0))
    assert [target.text for target in report.targets(found)] == [
        "rfc2217 up, 0xFF: 300 MB/s, at least 100",
        "0xFF up, socket: 150.0 times PortManager at a terminal, at least 10",
    ]


def test_the_screen_has_what_was_published_beside_mpremote_and_names_what_is_missing() -> None:
    screen = io.StringIO()
    shown = summary(
        visit(0.6, client="mpremote"),
        visit(0.003),
        Row(
            rows.PAIRS,
            "socat",
            "raw",
            "board",
            "mpremote",
            RESUME,
            "",
            0,
            rows.SECONDS,
            error="not installed",
            missing=True,
        ),
    )
    report.show(Console(file=screen, width=200), shown, judged=True)
    said = screen.getvalue()
    assert next(line for line in said.splitlines() if line.split()[:1] == ["mpremote"]).split()[-2:] == ["439", "735"]
    assert "socat: not installed" in said
    assert "fastflight sync, raw: 3.0 ms, at most 8: met" in said
