"""Runs the notebooks of docs/ against servers of this process.

    python -m tests.docs.notebooks

runs both, and stores them with their outputs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.gap import Why, microseconds
from fastflight.log import Store
from fastflight.sources.session_lines import BEGAN
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.servers import config

DOCS = Path(__file__).parents[2] / "docs"
FILES, LIVE = DOCS / "notebook.ipynb", DOCS / "live.ipynb"
# The minutes of yesterday whose lines are missing.
MISSING = range(600, 660)

EXECUTE = """
import json, sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
client = nbclient.NotebookClient(notebook, record_timing=False)
client.execute()
print(nbformat.writes(notebook))
"""


def run(server: str, folder: Path, notebook: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook in a process of its own: a kernel and its sockets take their time to go.

    Standard output is the notebook with its new outputs.
    """
    return subprocess.run(
        [sys.executable, "-c", EXECUTE, str(notebook)],
        env={**os.environ, "FASTFLIGHT_SERVER": server, "IPYTHONDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def record_yesterday(folder: Path) -> None:
    """Make a recording of a board that printed a line each minute of yesterday, except those of `MISSING`."""
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    chunks = []
    for minute in range(24 * 60):
        celsius = round(20 - 5 * math.cos(2 * math.pi * minute / (24 * 60)) + math.sin(minute / 9), 2)
        line = json.dumps({"ms": 60_000 * minute, "temperature": celsius, "humidity": 50.0})
        at = int((begin + timedelta(minutes=minute)).timestamp()) * 10**9
        chunks.append(Chunk(minute, at, "rx", line.encode() + b"\r\n"))
    with Store(folder) as store:
        log = store.open("demo")
        log.append(log_batch(chunks[: MISSING.start], {0: BEGAN})).result()
        log.append(log_batch(chunks[MISSING.stop :], {}), first=MISSING.stop).result()
        # What is missing from midnight on is no gap of yesterday.
        store.mark_end({log.id: microseconds(begin + timedelta(days=1))}, Why.STOPPED)


@contextmanager
def recording_server(folder: Path) -> Iterator[str]:
    """Run a server that recorded yesterday, and records now."""
    record_yesterday(folder)
    settings = config(recordings=RecordingSettings(folder=folder), record=["demo"])
    with open_server(settings) as running:
        yield running.location


def main() -> None:
    """Run both notebooks, and store their outputs."""
    with tempfile.TemporaryDirectory() as folder, recording_server(Path(folder) / "recordings") as server:
        for notebook in (FILES, LIVE):
            done = run(server, Path(folder), notebook)
            if done.returncode:
                sys.exit(done.stderr[-3000:])
            notebook.write_text(done.stdout.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
