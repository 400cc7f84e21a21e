"""The plots of the suite `bridge`: visits, round trips and throughput, each client and bridge beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fastflight_benchmark.plots import ASYNC_COLOUR, BACKED, LIMIT_COLOUR, SYNC_COLOUR, finish
from fastflight_benchmark.suites.bridge import rows, servers, traffic, visits
from fastflight_benchmark.suites.bridge.connect import RESUME, SOFT_RESET
from fastflight_benchmark.suites.bridge.device import ESCAPED, RANDOM
from fastflight_benchmark.suites.bridge.report import BULK_RATES, PUBLISHED, VISIT_SECONDS, one
from fastflight_benchmark.suites.bridge.rows import NO_SERVER
from fastflight_benchmark.suites.bridge.servers import RAW, RFC2217
from fastflight_benchmark.suites.bridge.traffic import DOWN, SOCKET, TERMINAL, UP

PORTS: Mapping[str, str] = {"": "no bridge", RAW: "raw socket", RFC2217: "RFC 2217"}
PORT_COLOURS: Mapping[str, str] = {"": LIMIT_COLOUR, RAW: ASYNC_COLOUR, RFC2217: "#d08a2e"}
DIRECTION_COLOURS: Mapping[str, str] = {UP: ASYNC_COLOUR, DOWN: SYNC_COLOUR}
PUBLISHED_COLOUR, TARGET_COLOUR = "#b03a2e", "#2e8b57"
CLIENTS = (*visits.OURS, visits.PYSERIAL, visits.MPREMOTE)


def bridge(result: pd.DataFrame, description: Mapping[str, Any]) -> dict[str, Figure]:
    """Return all plots of a result."""
    # pandas reads an empty text as a missing value.
    texts = ["server", "port", "device", "client", "work", "content", "note"]
    result = result.assign(**{name: result[name].astype(object).fillna("") for name in texts})
    return {
        "visits": visited(result[result["part"] == rows.CONNECT], description),
        "round_trips": round_trips(result[result["part"] == rows.ROUND_TRIP], description),
        "bulk": bulk(result[result["part"] == rows.BULK], description),
    }


def visited(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw milliseconds from connecting to closing, by client and port, on a logarithmic scale."""
    figure, grid = plt.subplots(1, 2, figsize=(12.5, 4.8), sharey=True, squeeze=False)
    for work, axes in zip((RESUME, SOFT_RESET), grid[0], strict=True):
        for number, port in enumerate(PORTS):
            found = [one(cells, client=client, port=port, work=work) for client in CLIENTS]
            places = [place + (number - 1) * 0.27 for place in range(len(CLIENTS))]
            heights = [1e3 * row["median"] for row in found]
            axes.bar(places, heights, 0.26, label=PORTS[port], color=PORT_COLOURS[port])
            published = 1e3 * PUBLISHED[port, work] if port else 0.0
            for client, place, height in zip(CLIENTS, places, heights, strict=True):
                if height == height:
                    text = f"{height:.1f}" if height < 100 else f"{height:.0f}"
                    # Above the mark of the published figure, if that is near.
                    over = height * 1.08 if client != visits.MPREMOTE else max(height * 1.08, published * 1.25)
                    axes.text(place, over, text, ha="center", fontsize=6.5, bbox=BACKED)
            if port:
                label = "published for another bridge, on another machine" if port == RAW else ""
                axes.plot(places[-1], published, "D", color=PUBLISHED_COLOUR, ms=5, label=label)
                if work == RESUME:
                    axes.hlines(
                        1e3 * VISIT_SECONDS[port], -0.5, len(visits.OURS) - 0.5,
                        colors=PORT_COLOURS[port], lw=1, ls="--", label=f"target, {PORTS[port]}",
                    )  # fmt: skip
        _use_logarithmic_axis(axes)
        axes.margins(y=0.12)
        names = [client.replace("fastflight ", "fastflight\n") for client in CLIENTS]
        axes.set_xticks(range(len(CLIENTS)), names, fontsize=8)
        axes.set_title(work, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("ms, median")
    _legend(figure, grid[0, 0])
    figure.suptitle("Connect, eval 1+1, close", x=0.02, ha="left", fontsize=12)
    peers = description["peers"]
    note = (
        f"Simulated boards behind fastflight bridge. mpremote {peers['mpremote']} is a process: Python's start is in "
        f"its figures. pyserial {peers['pyserial']}. lease: our client, which learns what the board can do"
    )
    finish(figure, note, description)
    return figure


def round_trips(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw the microseconds that each bridge adds: median, and a line up to the 99th percentile."""
    figure, grid = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True, squeeze=False)
    added = cells[cells["work"] == traffic.ADDED]
    for device, axes in zip((TERMINAL, SOCKET), grid[0], strict=True):
        at = added[(added["device"] == device) & (added["count"] > 0)]
        for place, row in enumerate(at.to_dict("records")):
            median, p99 = 1e6 * row["median"], 1e6 * row["p99"]
            axes.bar(place, median, 0.6, color=PORT_COLOURS[row["port"]])
            axes.vlines(place, median, max(median, p99), colors="#555555", lw=1)
            axes.text(place, max(median, p99) * 1.08, f"{median:.0f}\np99 {p99:.0f}", ha="center", fontsize=8)
        axes.set_xticks(range(len(at)), _names(at), fontsize=8)
        alone = one(cells, device=device, server=NO_SERVER)
        axes.set_title(f"{device}: {1e6 * alone['median']:.0f} µs without a bridge", loc="left", fontsize=10)
        axes.axhline(500, color=TARGET_COLOUR, lw=1, ls="--", label="target, median")
        axes.axhline(2000, color=TARGET_COLOUR, lw=1, ls=":", label="target, p99")
        _use_logarithmic_axis(axes)
        axes.margins(y=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("µs added")
    _legend(figure, grid[0, 0])
    figure.suptitle("What a bridge adds to a byte there and back", x=0.02, ha="left", fontsize=12)
    finish(figure, "Differences of pairs next to each other; bars: median, lines: up to p99", description)
    return figure


def bulk(cells: pd.DataFrame, description: Mapping[str, Any]) -> Figure:
    """Draw MB/s in both directions: a row of axes per content, a column per device."""
    figure, grid = plt.subplots(2, 2, figsize=(11.5, 7.2), sharey=True, squeeze=False)
    for content, line in zip((RANDOM, ESCAPED), grid, strict=True):
        for device, axes in zip((TERMINAL, SOCKET), line, strict=True):
            at = cells[(cells["device"] == device) & (cells["content"] == content)]
            ways = at[at["count"] > 0].drop_duplicates(["server", "port"])
            for number, (work, colour) in enumerate(DIRECTION_COLOURS.items()):
                places = [place + (number - 0.5) * 0.4 for place in range(len(ways))]
                found = [
                    one(at, server=row["server"], port=row["port"], work=work)["median"]
                    for row in ways.to_dict("records")
                ]
                axes.bar(places, found, 0.38, label=work, color=colour)
                for place, rate in zip(places, found, strict=True):
                    axes.text(place, rate * 1.05, f"{rate:,.0f}", ha="center", fontsize=7)
            if device == SOCKET:
                port = RAW if content == RANDOM else RFC2217
                for place, row in enumerate(ways.to_dict("records")):
                    if (row["server"], row["port"]) == (servers.FASTFLIGHT, port):
                        ends = place - 0.45, place + 0.45
                        axes.hlines(BULK_RATES[port], *ends, colors=TARGET_COLOUR, ls="--", lw=1.5, label="target")
            _use_logarithmic_axis(axes)
            axes.margins(y=0.15)
            axes.set_xticks(range(len(ways)), _names(ways), fontsize=8)
            axes.set_title(
                f"{device}, {'every byte 0xFF' if content == ESCAPED else 'random bytes'}", loc="left", fontsize=10
            )
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("MB/s")
    _legend(figure, grid[0, 1])
    figure.suptitle("Throughput through a null device", x=0.02, ha="left", fontsize=12)
    finish(figure, "Up: to the device. Medians; what crossed was compared with what was sent", description)
    return figure


def _names(ways: pd.DataFrame) -> Sequence[str]:
    return [
        "no bridge" if row["server"] == NO_SERVER else f"{row['server']}\n{PORTS[row['port']]}"
        for row in ways.to_dict("records")
    ]


def _use_logarithmic_axis(axes: Axes) -> None:
    """Use a logarithmic axis with powers of ten written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=6, frameon=False, fontsize=8)
