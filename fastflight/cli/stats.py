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
from fastflight.client.meaning import text, understood

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
    with understood("the answer with the server's metrics", server):
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
        "idle users of a device": _sum(metrics, "fastflight_device_put_out_total"),
    }
    words = [f"{count:,.0f} {what}" for what, count in counts.items() if count]
    cut = _sum(metrics, "fastflight_connections_cut_total")
    browsers = _sum(metrics, "fastflight_bridge_browsers_total")
    words += [f"{browsers:,.0f} browsers refused by bridges"] if browsers else []
    return words + ([f"{cut:,.0f} connections cut"] if cut else [])


def _limits(metrics: Metrics) -> Table:
    table = _table("limit", ">used", ">of", "", ">refused")
    refused = _by(metrics, "fastflight_refused_total", "limit")
    used = _by(metrics, "fastflight_limit_used", "limit", max)
    for limit, size in _by(metrics, "fastflight_limit", "limit", max).items():
        part = used.get(limit, 0) / size if size else 0.0
        refusals = refused.get(limit)
        table.add_row(
            LIMITS.get(limit, limit),
            _format_count(int(used.get(limit, 0))),
            _format_count(int(size)),
            Text(f"{part:4.0%}", style="bold red" if part >= HIGH else ""),
            "" if refusals is None else _format_count(int(refusals)),
        )
    return table


def _streams(metrics: Metrics, before: Metrics) -> Table | None:
    names = sorted(_by(metrics, "fastflight_streams_open", "source"))
    if not names:
        return None
    table = _table("streams", ">open", ">finished", ">failed", ">cancelled", ">rows", ">bytes", ">a second")
    opened = _by(metrics, "fastflight_streams_open", "source")
    rows, size = (_by(metrics, name, "source") for name in ("fastflight_rows_total", "fastflight_bytes_total"))
    earlier = _by(before, "fastflight_bytes_total", "source")
    for name in names:
        ended = {
            labels["outcome"]: value
            for labels, value in metrics.get("fastflight_streams_total", ())
            if labels["source"] == name
        }
        rate = f"{screen.size(int((size[name] - earlier[name]) / WATCH_SECONDS))}" if name in earlier else "-"
        outcomes = [_format_count(int(ended.get(each, 0))) for each in ("finished", "failed", "cancelled")]
        counted, moved = _format_count(int(rows.get(name, 0))), screen.size(int(size.get(name, 0)))
        table.add_row(name, _format_count(int(opened[name])), *outcomes, counted, moved, rate)
    return table


def _devices(metrics: Metrics, before: Metrics) -> Table | None:
    opened = _by(metrics, "fastflight_device_open", "device")
    if not opened:
        return None
    table = _table("devices", "line", ">last data", ">received", ">a second", ">sent", ">outages", ">missed")
    of = {
        name: _by(metrics, f"fastflight_device_{name}", "device")
        for name in ("held", "in_trouble", "data_age_seconds", "outages_total", "missed_total")
    }
    totals = {way: _device_bytes(metrics, way) for way in ("rx", "tx")}
    earlier = _device_bytes(before, "rx")
    for name in list(opened)[:MAX_LISTED]:
        state = "lost" if of["in_trouble"].get(name) else "in use" if of["held"].get(name) else "open"
        received = totals["rx"].get(name, 0)
        table.add_row(
            name,
            Text(state if opened[name] or state == "lost" else "closed", style="bold red" if state == "lost" else ""),
            _format_age(of["data_age_seconds"].get(name)),
            screen.size(int(received)),
            screen.size(int((received - earlier[name]) / WATCH_SECONDS)) if name in earlier else "-",
            screen.size(int(totals["tx"].get(name, 0))),
            _format_count(int(of["outages_total"].get(name, 0))),
            _format_count(int(of["missed_total"].get(name, 0))),
        )
    return _add_rest(table, len(opened))


def _recordings(metrics: Metrics) -> Table | None:
    rows = _by(metrics, "fastflight_recording_rows", "device")
    if not rows:
        return None
    table = _table("recordings", ">rows", ">bytes", ">newest", ">lost", ">failures", ">damage")
    of = {
        name: _by(metrics, f"fastflight_recording_{name}", "device")
        for name in ("bytes", "age_seconds", "lost", "failures_total", "damage")
    }
    for name in list(rows)[:MAX_LISTED]:
        table.add_row(
            name,
            _format_count(int(rows.get(name, 0))),
            screen.size(int(of["bytes"].get(name, 0))),
            _format_age(of["age_seconds"].get(name)),
            *(_format_count(int(of[each].get(name, 0))) for each in ("lost", "failures_total", "damage")),
        )
    return _add_rest(table, len(rows))


def _publishing(metrics: Metrics) -> Table | None:
    failing = metrics.get("fastflight_publish_failing", ())
    if not failing:
        return None
    of: dict[str, dict[tuple[str, str], float]] = {}
    for name in ("rows_total", "waiting", "lost_total"):
        for labels, value in metrics.get(f"fastflight_publish_{name}", ()):
            of.setdefault(labels.get("outcome", name), {})[labels["device"], labels["output"]] = value
    table = _table("publishing", "to", "", ">sent", ">left out", ">waiting", ">lost")
    for labels, value in failing[:MAX_LISTED]:
        key = labels["device"], labels["output"]
        sent, refused, misfits, waiting, lost = (
            int(of.get(name, {}).get(key, 0)) for name in ("sent", "refused", "misfit", "waiting", "lost_total")
        )
        counts = map(_format_count, (sent, refused + misfits, waiting, lost))
        table.add_row(*key, Text("failing" if value else "", style="bold red"), *counts)
    return _add_rest(table, len(failing))


def _shards(metrics: Metrics) -> Table:
    table = _table("event loops", ">streams", ">tasks", ">late", ">at worst", ">stuck")
    columns = ["streams", "tasks", "lag_seconds", "longest_lag_seconds", "stuck_total"]
    found: dict[tuple[str, ...], list[float]] = {}
    for column in columns:
        for labels, value in metrics.get(f"fastflight_shard_{column}", ()):
            found.setdefault(tuple(reversed(list(labels.values()))), []).append(value)
    for names, (streams, tasks, late, worst, stuck) in found.items():
        lags = (f"{1000 * each:.1f} ms" for each in (late, worst))
        table.add_row(
            " ".join(names), _format_count(int(streams)), _format_count(int(tasks)), *lags, _format_count(int(stuck))
        )
    return table


def _table(*headings: str) -> Table:
    """Return an empty table. A column whose heading begins with `>` is aligned to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        first = heading == headings[0]
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            no_wrap=True,
            min_width=12 if first else None,
            overflow="ellipsis",
        )
    return table


def _add_rest(table: Table, count: int) -> Table:
    """Add a row that says how many of `count` rows are not listed, if there are such rows."""
    if count > MAX_LISTED:
        table.add_row(f"and {count - MAX_LISTED} more")
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


def _format_count(number: int) -> str:
    return f"{number:,}"


def _format_age(seconds: float | None) -> str:
    """Format an age: `12 s ago`; None as `-`."""
    if seconds is None:
        return "-"
    for unit, each in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < each * 100:
            return f"{seconds / each:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} d ago"
