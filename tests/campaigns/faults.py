"""Injects faults at every hop while files are copied, sessions are read and recordings are written.

    python -m tests.campaigns.faults --faults 1000 --seed 1
    python -m tests.campaigns.faults --faults 1000 --tls              # TLS and a token at the server's ports
    python -m tests.campaigns.faults --faults 40 --line socket        # only devices behind a socket
    python -m tests.campaigns.faults --only 17 --line exec            # repeat one fault by its number

Ends by itself, after some minutes for each hundred faults. Exit code 1: an acknowledged byte or row is missing or
wrong, an error has no code of ours, something never ended, or something could not be used again without help.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fastflight_benchmark import ending
from tests.campaigns.faulting import report
from tests.campaigns.faulting.campaign import SEED, SHOWN_CHARACTERS, Campaign
from tests.campaigns.faulting.stage import LINES
from tests.campaigns.faulting.trial import BAD

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    faults: Annotated[int, typer.Option(min=1, metavar="N", help="How many, over all lines.")] = 100,
    seed: Annotated[int, typer.Option(metavar="N", help="Which campaign: decides all about each fault.")] = SEED,
    line: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"{', '.join(LINES)}; repeatable. All of them.")
    ] = None,
    only: Annotated[list[int] | None, typer.Option(metavar="NUMBER", help="Only this one of each; repeatable.")] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="With TLS and a token at the server's ports; bits are flipped there, too.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="No fault begins after so many, however many there were.")
    ] = math.inf,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="A CSV with a row for each fault.")
    ] = None,
) -> None:
    """Carry out a campaign, and print its tables."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fastflight-faults-") as folder:
        told = partial(print, flush=True)
        campaign = Campaign(Path(folder), seed, line or None, progress=told, tls=tls, seconds=60 * minutes)
        outcomes, flaws = campaign.run(faults, only)
    frame = report.frame_of(outcomes)
    if output is not None:
        frame.to_csv(output, index=False)
    for by in (("kind_of_work",), ("hop", "kind")):
        print(f"\n{report.markdown(report.summarize(frame, by), by)}")
    bad = frame[frame["ended"].isin(BAD)]
    for flaw in flaws:
        print(f"\nflaw: {flaw[:SHOWN_CHARACTERS]}")
    found = {"faults": len(frame), "acknowledged_rows": campaign.acknowledged, "bad": len(bad), "flaws": len(flaws)}
    print(f"\n{json.dumps({'seed': seed, 'tls': tls, **found, 'seconds': round(time.monotonic() - began)})}")
    raise typer.Exit(1 if len(bad) or flaws else 0)


if __name__ == "__main__":
    ending.like_ctrl_c()
    app()
