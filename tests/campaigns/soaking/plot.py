"""The plot of a soak: memory, descriptors and threads of the server's process over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: there may be no display

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from fastflight_benchmark import machine

COLOUR, SHADE, COMPACTING = "#2f6f9f", "#dddddd", "#f7ecd2"
DPI = 120


def drawn(samples: pd.DataFrame, warm_up_seconds: float, description: Mapping[str, Any]) -> Figure:
    """Five panels with one axis of time. The warm-up, which the slope leaves out, is shaded, and so is compacting."""
    figure, panels = plt.subplots(5, 1, figsize=(9, 10), sharex=True, dpi=DPI)
    began = samples["seconds"].iloc[0]
    minutes = (samples["seconds"] - began) / 60
    warm_up = min(warm_up_seconds / 60, minutes.iloc[-1])
    for axes, (title, columns) in zip(
        panels,
        (
            (f"memory, MB (RSS): {_grew(**description['slope'])}", ["rss_mb"]),
            ("open descriptors", ["descriptors"]),
            ("threads (light: but for pools)", ["threads", "lasting_threads"]),
            ("open streams", ["streams"]),
            ("time of the processors that their host gave to others, %", ["stolen"]),
        ),
        strict=True,
    ):
        axes.axvspan(0, warm_up, color=SHADE, linewidth=0)
        shaded = samples["compacting"] & (minutes >= warm_up)
        axes.fill_between(minutes, 0, 1, shaded, transform=axes.get_xaxis_transform(), color=COMPACTING, linewidth=0)
        for place, column in enumerate(columns):
            there = samples[column].where(samples[column] >= 0)
            axes.plot(minutes, there, color=COLOUR, alpha=1 if not place else 0.45, linewidth=1.2)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.grid(axis="y", linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("minutes (grey: warm-up, yellow: recordings are compacted)")
    figure.suptitle(f"{description['boards']} boards, {description['clients']} clients that come and go", fontsize=12)
    figure.text(0.01, 0.005, machine.in_one_line(description["machine"]), fontsize=6.5, color="#666666")
    figure.tight_layout(rect=(0, 0.015, 1, 1))
    return figure


def _grew(mb_per_hour: float, low: float, high: float) -> str:
    if math.isnan(mb_per_hour):
        return "over before the warm-up was"
    return f"{mb_per_hour:+.1f} MB per hour after the warm-up, 95 % within {low:+.1f} and {high:+.1f}"
