"""Suite `beside`: files to and from a simulated board while its program runs and prints.

The program prints 10 rows a second, and has a loop that wants to run every 10 ms. A file of random bytes is written and
read through the agent, as a timer and as an asyncio task, and through aiorepl. Each result has the share of the line's
speed, the longest time between two turns of that loop, and how many rows of the program were missing from its session.

The board is simulated: CPython runs its program, so the stops say what the protocol costs, not
how long a board's chip takes.
"""

from __future__ import annotations

import itertools
import random
import re
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight.concurrency import Shard
from fastflight.device import Device, Session
from fastflight.errors import DataError, FastFlightError
from fastflight.transport import parse_url
from fastflight.transport.chunk_buffer import Chunk
from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options

AGENT = "fastflight_agent.py"
TASKS = """\
number = worst = 0
async def rows():
    global number
    while True:
        print("row", number, "21.5,1013.2")
        number += 1
        await asyncio.sleep_ms(100)
async def turns():
    global worst
    last = time.ticks_ms()
    while True:
        await asyncio.sleep_ms(10)
        now = time.ticks_ms()
        worst = max(worst, now - last)
        last = now
async def main():
    asyncio.create_task(rows())
    asyncio.create_task(turns())
    await {task}
asyncio.run(main())
"""
PROGRAMS = {
    "agent (timer)": """\
import time, fastflight_agent
number = worst = 0
last = due = time.ticks_ms()
while True:
    time.sleep_ms(10)
    now = time.ticks_ms()
    worst = max(worst, now - last)
    last = now
    if now >= due:
        print("row", number, "21.5,1013.2")
        number += 1
        due += 100
""",
    "agent (task)": "import asyncio, time, fastflight_agent\n" + TASKS.format(task="fastflight_agent.task()"),
    "aiorepl": "import asyncio, time, aiorepl\n" + TASKS.format(task="aiorepl.task()"),
}
SPEEDS = (115_200, 921_600)
# With a start bit and a stop bit.
BITS_PER_BYTE = 10
SIZE, QUICK_SIZE = 100_000, 10_000
UPLOAD, DOWNLOAD = "upload", "download"
ROW = re.compile(rb"row (\d+) 21\.5,1013\.2")
COLUMNS = [
    "beside",
    "line",
    "operation",
    "run",
    "size",
    "seconds",
    "of_line",
    "longest_stop_ms",
    "rows",
    "missing",
    "error",
]
KEYS = ["beside", "line", "operation"]


def run(options: Options) -> int:
    """Measure, save and show. Return how many copies failed."""
    size = QUICK_SIZE if options.quick else SIZE
    description = options.describe("beside", {"size": size, "lines": SPEEDS})
    rows: list[dict[str, Any]] = []
    for number, beside, baud in itertools.product(range(1, options.runs + 1), PROGRAMS, SPEEDS):
        with options.console.status(f"run {number}: {beside} at {baud} baud"):
            rows += [{"run": number} | row for row in visit(beside, baud, size)]
    raw = pd.DataFrame(rows, columns=COLUMNS)
    result = raw.groupby(KEYS, sort=False).agg(
        size=("size", "first"),
        of_line=("of_line", "median"),
        longest_stop_ms=("longest_stop_ms", "max"),
        rows=("rows", "sum"),
        missing=("missing", "sum"),
    )
    result = result.reset_index()
    output.save(options.output, result, {"raw": raw}, description)
    grid = report.table(
        f"{size // 1000} kB beside a program that prints 10 rows a second",
        ("beside", "baud", "operation", "of the line", "longest stop", "rows", "missing"),
    )
    for row in result.to_dict("records"):
        share, stop = f"{row['of_line']:.2f}", f"{row['longest_stop_ms']:.0f} ms"
        texts = [row["beside"], row["line"], row["operation"], share, stop, row["rows"], row["missing"]]
        grid.add_row(*map(str, texts))
    options.console.print(grid)
    failed = raw[raw["error"] != ""]
    report.show_end(options.console, description, failed["error"], options.output)
    return len(failed)


def markdown(result: pd.DataFrame) -> str:
    """Return the result as a table for a page: a line for each way to go beside a program, and speed of the line."""
    lines = [
        "| beside the program | baud | write: of the line, stop | read: of the line, stop |",
        "|---|---:|---:|---:|",
    ]
    for (beside, line), rows in result.groupby(["beside", "line"], sort=False):
        by_operation = {row["operation"]: row for row in rows.to_dict("records")}
        cells = [by_operation[operation] for operation in (UPLOAD, DOWNLOAD)]
        texts = [f"{cell['of_line']:.2f}, {cell['longest_stop_ms']:.0f} ms" for cell in cells]
        lines.append(f"| {beside} | {line} | {' | '.join(texts)} |")
    return "\n".join(lines)


def visit(beside: str, baud: int, size: int) -> list[dict[str, Any]]:
    """Copy a file both ways. Return a row of `COLUMNS` for each way, without its run."""
    content = random.Random(baud).randbytes(size)
    rows = []
    with tempfile.TemporaryDirectory(prefix="fastflight-benchmark-") as folder, Shard("beside") as shard:
        (Path(folder) / AGENT).write_bytes((resources.files("fastflight.device") / "agent" / AGENT).read_bytes())
        (Path(folder) / "main.py").write_text(PROGRAMS[beside])
        url = f"sim:?files={folder}&telemetry=0&baud={baud}"
        device = Device("board", parse_url(url), shard=shard, agent=beside != "aiorepl")
        try:
            with device.listen():
                for operation in (UPLOAD, DOWNLOAD):
                    rows.append({"beside": beside, "line": baud} | copy(device, baud, operation, content))
        finally:
            device.close()
    return rows


def copy(device: Device, baud: int, operation: str, content: bytes) -> dict[str, Any]:
    """Copy the file one way, and count the rows that the program printed meanwhile."""
    row: dict[str, Any] = {"operation": operation, "size": len(content), "error": ""}
    try:
        with device.lease("the benchmark") as session:
            first = _number(session, "worst = 0\nprint(number)")
            begun = time.perf_counter()
            if operation == UPLOAD:
                session.write("/content.bin", [content])
            elif b"".join(session.read("/content.bin")) != content:
                raise DataError("other bytes came back", where="/content.bin")
            seconds = time.perf_counter() - begun
            stop, last = _number(session, "print(worst)"), _number(session, "print(number)")
        seen = _rows(device)
        missing = [number for number in range(first, last) if number not in seen]
        row |= {"seconds": seconds, "of_line": len(content) / seconds / (baud / BITS_PER_BYTE)}
        row |= {"longest_stop_ms": stop, "rows": last - first, "missing": len(missing)}
    except FastFlightError as error:
        row["error"] = str(error)
    return row


def _number(session: Session, code: str) -> int:
    return int(session.exec(code).stdout)


def _rows(device: Device) -> set[int]:
    """Return the numbers of the complete rows in the session of the device."""
    chunks = (each for each in device.tap.reader(seq=0).rest() if isinstance(each, Chunk) and each.direction == "rx")
    lines = b"".join(each.data for each in chunks).replace(b"--> ", b"").splitlines()
    return {int(found[1]) for line in lines if (found := ROW.fullmatch(line))}
