"""`fastflight stats`: show a server's metrics as tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fastflight.cli import drawing, screen
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.client.validation import text, validating

# From one reading of the metrics to the next.
WATCH_SECONDS = 1.0
# Devices and recordings in a table: about as many as a screen has lines.
MAX_LISTED = 40
# A limit that is used at least to this part is red.
HIGH = 0.8
# Names of the limits for people, by the label `limit` of the metrics.
LIMITS = {
    "server": "streams",
    "calls": "calls",
    "device": "on one device",
    "identity": "of one client",
    "waiting": "waiting",
}
# Metrics by name: for each, pairs of labels and value.
Metrics = Mapping[str, Sequence[tuple[Mapping[str, str], Any]]]
Row = tuple[str | Text, ...]


@interruptible
@with_server_options
def stats(
    watch: Annotated[bool, typer.Option("--watch", help="Update each second, until Ctrl-C.")] = False,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Show what a server does: its limits and their use, streams, devices, recordings, event loops.

    --json prints all metrics; with --watch, a line of them each second.
    """
    with server.client() as client:
        if not watch:
            answer = client.stats()
            screen.as_json(answer) if json else drawing.show(render(server.location, answer, {}))
            return
        console = drawing.Screen()
        with Live(console=console, screen=console.is_terminal and not json, auto_refresh=False) as live:
            before: Metrics = {}
            while True:
                answer = client.stats()
                if json:
                    screen.as_json(answer)
                elif console.is_terminal:
                    live.update(render(server.location, answer, before), refresh=True)
                else:
                    drawing.show(render(server.location, answer, before))
                before = metrics_of(answer)
                time.sleep(WATCH_SECONDS)


def metrics_of(answer: Mapping[str, Any]) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """Return the metrics in a server's answer to `stats`."""
    return {
        name: [(dict(labels), value) for labels, value in samples]
        for name, samples in answer.get("figures", {}).items()
    }


def render(server: str, answer: Mapping[str, Any], before: Metrics) -> Group:
    """Return the tables for an answer to `stats`. `before`: the metrics of a second ago, for rates, or none.

    Raises `ProtocolError` if the answer lacks something or has a value of a wrong type.
    """
    with validating("the answer with the server's metrics", server):
        metrics = metrics_of(answer)
        for samples in metrics.values():
            for labels, _ in samples:
                for label in labels.values():
                    text(label)
        parts: list[Any] = [_head(server, answer, metrics), _limits(metrics), _streams(metrics, before)]
        parts += [_devices(metrics, before), _recordings(metrics), _publishing(metrics), _shards(metrics)]
    spaced = [each for part in parts if part is not None for each in (part, Text())]
    return Group(*spaced[:-1])


def _head(server: str, answer: Mapping[str, Any], metrics: Metrics) -> Text:
    parts = [
        f"{screen.size(int(_sum(metrics, 'process_resident_memory_bytes')))} of memory",
        f"{_sum(metrics, 'process_open_fds'):.0f} of {_sum(metrics, 'process_max_fds'):.0f} descriptors",
        f"{answer['threads']['all']} threads",
    ]
    text = drawing.cell(server, "bold").append("  " + ", ".join(parts), style="not bold")
    if removed := _removed(metrics):
        text.append("\nended: " + ", ".join(removed), style="not bold")
    return text


def _removed(metrics: Metrics) -> list[str]:
    """Return how many clients and connections the server has ended or refused, by reason."""
    overdue = _by(metrics, "fastflight_overdue_total", "client")
    counts = {
        "stalled readers": overdue.get("reader", 0),
        "idle writers": overdue.get("writer", 0),
        "idle users of a device": _sum(metrics, "fastflight_device_evicted_total"),
    }
    words = [f"{count:,.0f} {what}" for what, count in counts.items() if count]
    cut = _sum(metrics, "fastflight_connections_cut_total")
    browsers = _sum(metrics, "fastflight_bridge_browsers_total")
    words += [f"{browsers:,.0f} browsers refused by bridges"] if browsers else []
    return words + ([f"{cut:,.0f} connections cut"] if cut else [])


def _limits(metrics: Metrics) -> Table | None:
    refused = _by(metrics, "fastflight_refused_total", "limit")
    used = _by(metrics, "fastflight_limit_used", "limit", max)
    rows: list[Row] = []
    for limit, size in _by(metrics, "fastflight_limit", "limit", max).items():
        part = used.get(limit, 0) / size if size else 0.0
        counts = (_count(used.get(limit)), _count(size), Text(f"{part:4.0%}", style="bold red" if part >= HIGH else ""))
        rows.append((LIMITS.get(limit, limit), *counts, _count(refused[limit]) if limit in refused else ""))
    return _table(("limit", ">used", ">of", "", ">refused"), rows)


def _streams(metrics: Metrics, before: Metrics) -> Table | None:
    opened = _by(metrics, "fastflight_streams_open", "source")
    moved, earlier = (_by(each, "fastflight_bytes_total", "source") for each in (metrics, before))
    counted = _by(metrics, "fastflight_rows_total", "source")
    rows: list[Row] = []
    for name in sorted(opened):
        of_source = [sample for sample in metrics.get("fastflight_streams_total", ()) if sample[0]["source"] == name]
        ended = {labels["outcome"]: value for labels, value in of_source}
        outcomes = (_count(ended.get(each)) for each in ("finished", "failed", "cancelled"))
        rate = _rate(moved.get(name), earlier.get(name))
        rows.append((name, _count(opened[name]), *outcomes, _count(counted.get(name)), _size(moved.get(name)), rate))
    headings = ("streams", ">open", ">finished", ">failed", ">cancelled", ">rows", ">bytes", ">a second")
    return _table(headings, rows) if rows else None


def _devices(metrics: Metrics, before: Metrics) -> Table | None:
    opened = _by(metrics, "fastflight_device_open", "device")
    of = {
        name: _by(metrics, f"fastflight_device_{name}", "device")
        for name in ("held", "in_trouble", "data_age_seconds", "outages_total", "missed_total")
    }
    received, sent = (_device_bytes(metrics, direction) for direction in ("rx", "tx"))
    earlier = _device_bytes(before, "rx")
    rows: list[Row] = []
    for name, is_open in list(opened.items())[:MAX_LISTED]:
        state = "lost" if of["in_trouble"].get(name) else "in use" if of["held"].get(name) else "open"
        line = Text(state if is_open or state == "lost" else "closed", style="bold red" if state == "lost" else "")
        age, rate = _format_age(of["data_age_seconds"].get(name)), _rate(received.get(name, 0), earlier.get(name))
        problems = (_count(of[each].get(name)) for each in ("outages_total", "missed_total"))
        rows.append((name, line, age, _size(received.get(name)), rate, _size(sent.get(name)), *problems))
    headings = ("devices", "line", ">last data", ">received", ">a second", ">sent", ">outages", ">missed")
    return _table(headings, rows, len(opened)) if rows else None


def _recordings(metrics: Metrics) -> Table | None:
    recorded = _by(metrics, "fastflight_recording_rows", "device")
    of = {
        name: _by(metrics, f"fastflight_recording_{name}", "device")
        for name in ("bytes", "age_seconds", "lost", "failures_total", "damage")
    }
    rows: list[Row] = [
        (
            name,
            _count(count),
            _size(of["bytes"].get(name)),
            _format_age(of["age_seconds"].get(name)),
            *(_count(of[each].get(name)) for each in ("lost", "failures_total", "damage")),
        )
        for name, count in list(recorded.items())[:MAX_LISTED]
    ]
    headings = ("recordings", ">rows", ">bytes", ">newest", ">lost", ">failures", ">damage")
    return _table(headings, rows, len(recorded)) if rows else None


def _publishing(metrics: Metrics) -> Table | None:
    failing = metrics.get("fastflight_publish_failing", ())
    of: dict[str, dict[tuple[str, str], float]] = {}
    for name in ("rows_total", "waiting", "lost_total"):
        for labels, value in metrics.get(f"fastflight_publish_{name}", ()):
            of.setdefault(labels.get("outcome", name), {})[labels["device"], labels["output"]] = value
    rows: list[Row] = []
    for labels, value in failing[:MAX_LISTED]:
        key = labels["device"], labels["output"]
        names = ("sent", "refused", "misfit", "waiting", "lost_total")
        sent, refused, misfits, waiting, lost = (of.get(name, {}).get(key, 0) for name in names)
        state = Text("failing" if value else "", style="bold red")
        rows.append((*key, state, *map(_count, (sent, refused + misfits, waiting, lost))))
    headings = ("publishing", "to", "", ">sent", ">left out", ">waiting", ">lost")
    return _table(headings, rows, len(failing)) if rows else None


def _shards(metrics: Metrics) -> Table | None:
    found: dict[tuple[str, ...], list[float]] = {}
    for column in ("streams", "tasks", "lag_seconds", "longest_lag_seconds", "stuck_total"):
        for labels, value in metrics.get(f"fastflight_shard_{column}", ()):
            found.setdefault(tuple(reversed(list(labels.values()))), []).append(value)
    rows: list[Row] = []
    for names, (streams, tasks, late, worst, stuck) in found.items():
        lags = (f"{1000 * each:.1f} ms" for each in (late, worst))
        rows.append((" ".join(names), _count(streams), _count(tasks), *lags, _count(stuck)))
    return _table(("event loops", ">streams", ">tasks", ">late", ">at worst", ">stuck"), rows)


def _table(headings: Sequence[str], rows: Sequence[Row], count: int = 0) -> Table:
    """Return a table. A column whose heading begins with `>` is aligned to the right. `count`: how many rows exist."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            no_wrap=True,
            min_width=None if number else 12,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*row)
    if count > len(rows):
        table.add_row(f"and {count - len(rows)} more")
    return table


def _by(metrics: Metrics, name: str, label: str, together: Any = sum) -> dict[str, float]:
    """Return a metric by the values of one label; `together` joins samples that differ in other labels."""
    found: dict[str, list[float]] = {}
    for labels, value in metrics.get(name, ()):
        found.setdefault(labels[label], []).append(value)
    return {each: together(values) for each, values in found.items()}


def _device_bytes(metrics: Metrics, direction: str) -> dict[str, float]:
    """Return the bytes that crossed each device's line in one direction, `rx` or `tx`."""
    samples = metrics.get("fastflight_device_bytes_total", ())
    return {labels["device"]: value for labels, value in samples if labels["direction"] == direction}


def _sum(metrics: Metrics, name: str) -> float:
    return float(sum(value for _, value in metrics.get(name, ())))


def _count(number: float | None) -> str:
    return f"{int(number or 0):,}"


def _size(number: float | None) -> str:
    return screen.size(int(number or 0))


def _rate(now: float | None, before: float | None) -> str:
    """Format the bytes of a second, from a count and the one of a second ago; `-` if one is not known."""
    return "-" if now is None or before is None else screen.size(int((now - before) / WATCH_SECONDS))


def _format_age(seconds: float | None) -> str:
    """Format an age: `12 s ago`; None as `-`."""
    if seconds is None:
        return "-"
    for unit, each in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < each * 100:
            return f"{seconds / each:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} d ago"
