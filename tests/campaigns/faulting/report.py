"""The tables of a campaign: a row for each fault, and summaries by hop and by kind of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import pandas as pd

from tests.campaigns.faulting.trial import BAD, COMPLETED, HUNG, LOST, STUCK, TYPED, UNTYPED, WRONG, FaultOutcome

COLUMNS = ["hop", "fault", "work", "faults", "struck", "recovered", "typed", "codes", *BAD, "usable", "usable_max"]
# Of kinds of work that are struck alike, one word.
KINDS = {
    "put": "files to boards",
    "put -r": "files to boards",
    "PUT": "files to boards",
    "get": "files from boards",
    "get -r": "files from boards",
    "GET": "files from boards",
    "session": "sessions",
    "http session": "sessions",
    "recording": "recordings",
    "relay": "relay",
}


def frame_of(outcomes: Iterable[FaultOutcome]) -> pd.DataFrame:
    """Return a frame with one row for each fault."""
    frame = pd.DataFrame([asdict(outcome) for outcome in outcomes], columns=list(FaultOutcome.__dataclass_fields__))
    frame["kind_of_work"] = frame["work"].map(KINDS)
    return frame


def summarize(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return one row for each value of `by`, and one for all."""
    groups = [(key, group) for key, group in frame.groupby(list(by), sort=True)]
    rows = [{**dict(zip(by, key, strict=True)), **_row(group)} for key, group in groups]
    return pd.DataFrame([*rows, {**dict.fromkeys(by, ""), by[0]: "all", **_row(frame)}])


def _row(group: pd.DataFrame) -> dict[str, object]:
    ended = Counter(group["ended"])
    codes = Counter(group.loc[group["ended"] == TYPED, "code"])
    return {
        "faults": len(group),
        "struck": int(group["struck"].sum()),
        "recovered": int(((group["ended"] == COMPLETED) & group["struck"]).sum()),
        "typed": ended[TYPED],
        "codes": ", ".join(f"{code} {count}" for code, count in codes.most_common()),
        **{bad: ended[bad] for bad in (LOST, WRONG, UNTYPED, HUNG, STUCK)},
        "usable": float(group["usable_seconds"].median()),
        "usable_max": float(group["usable_seconds"].max()),
    }


def markdown(table: pd.DataFrame, by: Sequence[str]) -> str:
    """Return a table in Markdown."""
    bad = " | ".join(BAD)
    lines = [
        f"| {' | '.join(by)} | faults | struck | recovered | typed, by code | {bad} | usable after, median, max |",
        f"|{'---|' * len(by)}---:|---:|---:|---|{'---:|' * len(BAD)}---:|",
    ]
    for row in table.to_dict("records"):
        typed = f"{row['typed']}: {row['codes']}" if row["typed"] else "0"
        counts = " | ".join(str(row[name]) for name in BAD)
        lines.append(
            f"| {' | '.join(str(row[name]) for name in by)} | {row['faults']} | {row['struck']} | {row['recovered']} "
            f"| {typed} | {counts} | {row['usable']:.1f}, {row['usable_max']:.1f} s |"
        )
    return "\n".join(lines)
