"""Suite `relay`: TCP streams through the gateway's WebSocket, beside a plain TCP relay and one on `websockets`.

A seeder, each relay and the client are separate processes on this computer. The client counts and checks all bytes of
every transfer. The relays take turns, in an order that is reversed with each round. A ratio is that of one round. The
suite also shows the published figures of a daemon with the same design; they were not measured here.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.suites.relay.client import RAW
from fastflight_benchmark.suites.relay.measuring import COLUMNS, CONTENDERS, Scope, measured
from fastflight_benchmark.suites.relay.relays import LIBRARY, OURS, PLAIN

FULL = Scope(sizes=(10, 50, 100), chunks=(16, 64), reads=(16, 32, 64, 128, 256), rounds=3)
QUICK = Scope(sizes=(10,), chunks=(16, 64), reads=(16, 128), rounds=1)
# MB/s by KB of a read, as published for the JVM daemon.
ELSEWHERE: Mapping[int, float] = {16: 702.0, 32: 1212.0, 64: 1455.0, 128: 1684.0, 256: 1530.0}
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
# The targets, for reads of this many KB: the least ratio of the gateway's relay to each peer.
TARGET_READ = 128
TARGETS: Mapping[str, float] = {PLAIN: 0.5, LIBRARY: 1.5}
CELL = ["size_mb", "chunk_kb", "read_kb"]


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many transfers failed, transfers with wrong bytes included."""
    scope = scope or (QUICK if options.quick else FULL)
    peers = {"websockets": importlib.metadata.version("websockets")}
    description = options.describe("relay", scope, elsewhere=ELSEWHERE, peers=peers, congestion=congestion())
    options.say("seeder, relays and client are started here; --server is not used")
    with options.progress() as step:
        rows = list(measured(options.runs, scope, step))
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = summarize(raw)
    output.save(options.output, result, {"raw": raw}, description)
    show(options, result, raw)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def summarize(raw: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each cell: the median rate of each relay, and the median ratios of the gateway's relay."""
    rows = []
    for cell, group in raw[raw["error"] == ""].groupby(CELL, sort=True):
        rates = group.pivot(index="run", columns="contender", values="mbps").reindex(columns=list(CONTENDERS)).dropna()
        own = group[group["contender"] == OURS]
        row: dict[str, Any] = dict(zip(CELL, cell, strict=True)) | {"rounds": len(rates)}
        row |= {f"{name}_mbps": rates[name].median() for name in CONTENDERS}
        used = group.groupby("contender")["cpu"].median()
        row |= {f"{name}_cpu": used.get(name) for name in (PLAIN, OURS, LIBRARY)}
        row |= {f"to_{name}": (rates[OURS] / rates[name]).median() for name in (RAW, PLAIN, LIBRARY)}
        rows.append(row | {"frames": own["frames"].median(), "mean_frame": own["mean_frame"].median()})
    return pd.DataFrame(rows)


def ratios(raw: pd.DataFrame, peer: str) -> pd.Series[float]:
    """Return the ratios of the gateway's relay to `peer`, for the read size of the targets, by round and cell."""
    right = raw[(raw["error"] == "") & (raw["read_kb"] == TARGET_READ)]
    rates = right.pivot(index=[*CELL, "run"], columns="contender", values="mbps")
    return (rates[OURS] / rates[peer]).dropna()


def congestion() -> str:
    """Return the name of the system's TCP congestion control. Some kinds pace even on loopback."""
    try:
        return CONGESTION.read_text().strip()
    except OSError:
        return "unknown"


def show(options: Options, result: pd.DataFrame, raw: pd.DataFrame) -> None:
    """Show a table for each of the seeder's chunks, the published figures, and whether the targets are met."""
    for chunk, cells in result.groupby("chunk_kb"):
        grid = report.table(
            f"MB/s (MiB), the seeder's chunks {chunk} KB; medians of rounds, ours to a peer by rounds",
            ("size", "read", "raw", "plain TCP", "ours", "websockets", "frames", "mean frame"),
            "to plain",
            "to websockets",
        )
        for row in cells.to_dict("records"):
            grid.add_row(
                f"{row['size_mb']} MB",
                f"{row['read_kb']} KB",
                *(f"{row[f'{name}_mbps']:,.0f}" for name in CONTENDERS),
                f"{row['frames']:,.0f}",
                f"{row['mean_frame'] / 1024:.1f} KB",
                f"{row[f'to_{PLAIN}']:.2f}",
                f"{row[f'to_{LIBRARY}']:.2f}",
            )
        options.console.print(grid)
    published = ", ".join(f"{rate:,.0f} at {read} KB" for read, rate in ELSEWHERE.items())
    used = raw[raw["error"] == ""].groupby("contender")["cpu"].mean()
    seconds = ", ".join(f"{name} {used[name]:.2f}" for name in (PLAIN, OURS, LIBRARY) if name in used)
    options.say(f"seconds of a core that a relay used for each GiB, mean of all transfers: {seconds}")
    if {OURS, LIBRARY} <= set(used.index) and used[OURS]:
        options.say(f"for each second of ours, the relay on websockets used {used[LIBRARY] / used[OURS]:.2f}")
    options.say(f"TCP congestion control: {congestion()}; on loopback ours uses reno, the others use the system's")
    options.say(f"the JVM daemon, as published and not measured here, MB/s: {published}")
    if options.quick:
        return
    for peer, target in TARGETS.items():
        found = ratios(raw, peer)
        if found.empty:
            continue
        text = (
            f"reads of {TARGET_READ} KB: {found.median():.2f} of {peer} (median of {len(found)}; lowest "
            f"{found.min():.2f}, highest {found.max():.2f}); the target is {target}"
        )
        report.show_met(options.console, [report.Target(text, bool(found.median() >= target))])
