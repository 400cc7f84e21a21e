"""Shows the result of the suite `bridge`, with the published figures of the bridge that this one is modelled on."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from rich.console import Console

from fastflight_benchmark.report import Target, show_met, table
from fastflight_benchmark.suites.bridge import idle, rows, traffic, visits, whole
from fastflight_benchmark.suites.bridge.connect import RESUME, SOFT_RESET
from fastflight_benchmark.suites.bridge.device import ESCAPED, RANDOM
from fastflight_benchmark.suites.bridge.servers import FASTFLIGHT, PORT_MANAGER, RAW, RFC2217
from fastflight_benchmark.suites.bridge.traffic import DOWN, SOCKET, TERMINAL, UP

# Seconds of `mpremote eval` through mpremote_bridge.py and the unix port, as published by its author. They were
# measured on another machine and include Python's start.
PUBLISHED = {(RAW, RESUME): 0.439, (RAW, SOFT_RESET): 0.735, (RFC2217, RESUME): 0.849, (RFC2217, SOFT_RESET): 1.018}
# The targets of the project.
VISIT_SECONDS = {RFC2217: 0.015, RAW: 0.008}
ADDED_MEDIAN_SECONDS, ADDED_P99_SECONDS = 0.0005, 0.002
BESIDE_SOCAT = 1.05
BULK_RATES = {RAW: 200.0, RFC2217: 100.0}
BULK_CONTENT = {RAW: RANDOM, RFC2217: ESCAPED}
TIMES_PORT_MANAGER = 10.0
IDLE_PERCENT = 0.5
# Five idle bridges wake up a few times, for a signal or a page fault. A timer in each of them would exceed this.
IDLE_PER_SECOND = 0.5


def show(console: Console, result: pd.DataFrame, *, judged: bool) -> None:
    """Show all parts and, if `judged`, whether the targets are met."""
    _show_visits(console, result)
    _show_round_trips(console, result)
    _show_bulk(console, result)
    _show_rest(console, result)
    for row in result[(result["note"] != "") & (result["failed"] == 0)].to_dict("records"):
        console.print(f"{row['server']}: {row['note']}", style="dim", highlight=False)
    if judged:
        show_met(console, targets(result))


def _show_visits(console: Console, result: pd.DataFrame) -> None:
    grid = table(
        "Connect, eval 1+1, close, in ms: median (lowest, highest); published: another bridge on another machine",
        ("client", "port", "resume", "with soft reset", "published resume"),
        "published reset",
    )
    chosen = result[result["part"] == rows.CONNECT]
    for client, port in chosen[["client", "port"]].drop_duplicates().itertuples(index=False):
        known = (
            [PUBLISHED.get((port, work)) for work in (RESUME, SOFT_RESET)] if client == visits.MPREMOTE else [None] * 2
        )
        grid.add_row(
            client,
            port or "no bridge",
            *(_ms(one(chosen, client=client, port=port, work=work)) for work in (RESUME, SOFT_RESET)),
            *(f"{1e3 * seconds:.0f}" if seconds else "" for seconds in known),
        )
    console.print(grid)
    for row in result[result["part"] == rows.START].to_dict("records"):
        console.print(f"of mpremote's time: {row['work']} {_ms(pd.Series(row))} ms", highlight=False)
    for row in result[result["part"] == rows.PAIRS].to_dict("records"):
        figure = f"{_ms(pd.Series(row))} ms" if row["unit"] == rows.SECONDS else f"{row['median']:.3f} (pairs' median)"
        console.print(f"mpremote resume eval, raw port, {row['server']}: {figure}", highlight=False)
    console.print()


def _show_round_trips(console: Console, result: pd.DataFrame) -> None:
    grid = table(
        "One byte there and back, in µs; added: to the device without a bridge, by pairs",
        ("device", "bridge", "port", "median", "p99", "added median"),
        "added p99",
    )
    chosen = result[result["part"] == rows.ROUND_TRIP]
    for device, server, port in chosen[["device", "server", "port"]].drop_duplicates().itertuples(index=False):
        at = chosen[(chosen["device"] == device) & (chosen["server"] == server) & (chosen["port"] == port)]
        found = [one(at, work=work) for work in (traffic.ROUND_TRIP, traffic.ADDED)]
        figures = [f"{1e6 * row[name]:.0f}" if row["count"] else "" for row in found for name in ("median", "p99")]
        grid.add_row(device, server, port, *figures)
    console.print(grid)


def _show_bulk(console: Console, result: pd.DataFrame) -> None:
    kinds = [(kind, work) for kind in (RANDOM, ESCAPED) for work in (UP, DOWN)]
    grid = table(
        "MB/s of content through a null device, median; without a bridge: the limit",
        ("device", "bridge", "port", *(f"{kind} {work}" for kind, work in kinds)),
    )
    chosen = result[result["part"] == rows.BULK]
    for device, server, port in chosen[["device", "server", "port"]].drop_duplicates().itertuples(index=False):
        at = chosen[(chosen["device"] == device) & (chosen["server"] == server) & (chosen["port"] == port)]
        found = [one(at, content=kind, work=work) for kind, work in kinds]
        grid.add_row(device, server, port, *(f"{row['median']:.1f}" if row["count"] else "-" for row in found))
    console.print(grid)


def _show_rest(console: Console, result: pd.DataFrame) -> None:
    for row in result[result["part"].isin([rows.WHOLE, rows.IDLE])].to_dict("records"):
        console.print(
            f"{row['server']}, {row['port']}, {row['device']}: {row['work']} {row['median']:.4g} {row['unit']}",
            highlight=False,
        )
    console.print()


def targets(result: pd.DataFrame) -> Iterator[Target]:
    """Yield every target with a measured figure. A target is missed if one of its measurements failed."""
    visited = result[(result["part"] == rows.CONNECT) & (result["work"] == RESUME) & (result["server"] == FASTFLIGHT)]
    for client in visits.OURS:
        for port, most in VISIT_SECONDS.items():
            row = one(visited, client=client, port=port)
            yield from _judge(row, "median", f"{client}, {port}: {{:.1f}} ms, at most {1e3 * most:g}", most, 1e3)
    added = result[(result["work"] == traffic.ADDED) & (result["server"] == FASTFLIGHT)]
    for row in _each(added):
        name = f"added by {row['port']}, {row['device']}"
        yield from _judge(row, "median", f"{name}: {{:.2f}} ms median, below 0.5", ADDED_MEDIAN_SECONDS, 1e3)
        yield from _judge(row, "p99", f"{name}: {{:.2f}} ms p99, below 2", ADDED_P99_SECONDS, 1e3)
    ratio = one(result[result["part"] == rows.PAIRS], unit=rows.RATIO)
    yield from _judge(ratio, "median", f"mpremote by ours / by socat: {{:.3f}}, at most {BESIDE_SOCAT}", BESIDE_SOCAT)
    yield from _bulk_targets(result[result["part"] == rows.BULK])
    for row in _each(result[result["work"] == whole.WRONG]):
        yield from _judge(row, "median", f"lost or changed, {row['port']}: {{:.0f}} bytes, 0", 0)
    for row in _each(result[result["part"] == rows.IDLE]):
        most = IDLE_PERCENT if row["work"] == idle.CPU else IDLE_PER_SECOND
        name = f"{row['work']}, writers by {row['port']}, {row['device']}"
        yield from _judge(row, "median", f"{name}: {{:.2f}} {row['unit']}, below {most:g}", most)


def _bulk_targets(bulk: pd.DataFrame) -> Iterator[Target]:
    for port, least in BULK_RATES.items():
        for work in (UP, DOWN):
            at = {"port": port, "work": work, "content": BULK_CONTENT[port]}
            ours = one(bulk, server=FASTFLIGHT, device=SOCKET, **at)
            text = f"{port} {work}, {BULK_CONTENT[port]}: {{:.0f}} MB/s, at least {least:g}"
            yield from _judge(ours, "median", text, least, most_is_best=True)
    for kind in (RANDOM, ESCAPED):
        for work in (UP, DOWN):
            at = {"port": RFC2217, "work": work, "content": kind}
            peer_rate = one(bulk, server=PORT_MANAGER, device=TERMINAL, **at)["median"]
            for device in (TERMINAL, SOCKET):
                times = one(bulk, server=FASTFLIGHT, device=device, **at).copy()
                times["median"] = times["median"] / peer_rate
                # PortManager works with a terminal only.
                peer_name = "PortManager" if device == TERMINAL else "PortManager at a terminal"
                text = f"{kind} {work}, {device}: {{:.1f}} times {peer_name}, at least {TIMES_PORT_MANAGER:g}"
                yield from _judge(times, "median", text, TIMES_PORT_MANAGER, most_is_best=True)


def _judge(
    row: pd.Series, figure: str, text: str, bound: float, scale: float = 1, *, most_is_best: bool = False
) -> Iterator[Target]:
    value = row[figure]
    if row["failed"] > 0:
        yield Target(f"{text.format(value * scale)}; {row['failed']:.0f} failed", False)
    elif value == value:
        yield Target(text.format(value * scale), bool(value >= bound if most_is_best else value <= bound))


def one(result: pd.DataFrame, **at: str) -> pd.Series:
    """Return the row with these values, or a row without figures if there is none."""
    for column, value in at.items():
        result = result[result[column] == value]
    if result.empty:
        return pd.Series(dict.fromkeys(rows.SUMMARY, float("nan")) | {"count": 0})
    return result.iloc[0]


def _each(result: pd.DataFrame) -> Iterator[pd.Series]:
    for _, row in result.iterrows():
        yield row


def _ms(row: pd.Series) -> str:
    if not row["count"]:
        return "failed" if row.get("failed") else ""
    return f"{1e3 * row['median']:.1f} ({1e3 * row['lowest']:.1f}, {1e3 * row['highest']:.1f})"
