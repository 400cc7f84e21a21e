"""fastflight_benchmark/README.md quotes the results that are kept in docs/results, as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from fastflight_benchmark.suites.relay import suite as relay
from fastflight_benchmark.suites.relay.relays import LIBRARY, OURS, PLAIN

ROOT = Path(__file__).parents[2]
TEXT = " ".join((ROOT / "fastflight_benchmark" / "README.md").read_text(encoding="utf-8").split())


def test_the_relays_ratios_are_those_of_the_kept_result() -> None:
    raw = pd.read_csv(ROOT / "docs" / "results" / "relay_raw.csv", dtype={"error": str}).fillna({"error": ""})
    plain, library = relay.ratios(raw, PLAIN), relay.ratios(raw, LIBRARY)
    cpu = raw.groupby("contender")["cpu"].mean()
    for quoted in (
        f"ours was {plain.median():.2f} of the plain TCP relay (median of {len(plain)} rounds;",
        f"of {len(plain)} rounds; {plain.min():.2f} to {plain.max():.2f};",
        f"and {library.median():.2f} of the relay on `websockets` ({library.min():.2f} to {library.max():.2f};",
        f"used {cpu[PLAIN]:.2f} (plain), {cpu[OURS]:.2f} (ours) and {cpu[LIBRARY]:.2f} (`websockets`)",
    ):
        assert quoted in TEXT


def test_the_table_of_the_page_is_that_of_the_kept_result() -> None:
    cells = pd.read_csv(ROOT / "docs" / "results" / "page.csv").to_dict("records")
    rows = [
        f"| {cell['boards']} | {cell['viewers']} | {cell['min_ticks'] / cell['seconds']:.1f}, "
        f"{cell['median_ticks'] / cell['seconds']:.1f} | {cell['skipped']} | {cell['kb_per_second']:.0f} "
        f"| {cell['server_cores']:.2f} |"
        for cell in cells
    ]
    assert " ".join(rows) in TEXT
    assert len(rows) == len(re.findall(r"\| \d+ \| \d+ \| [\d.]+, [\d.]+ \|", TEXT))
