"""Suite `transfer`: files to and from a simulated board, by line speed, size and content, beside mpremote.

Then whole commands copy folders, beside mpremote and mpytool (`folders`).

A visit measures one cell: on a new connection, both paths of fastflight move the file in both directions, and then
mpremote does so on the same port. The order of the paths is reversed with each run. The first transfer of a connection
also installs code on the board, so it is a kind of its own. All cells would take hours. `plan` says which cells are
run, and why the others are not; the result has the reasons too.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight.device import Inventory
from fastflight.errors import DataError, FastFlightError, RequestError
from fastflight.transport import parse_url
from fastflight_benchmark import output, report
from fastflight_benchmark.options import Options
from fastflight_benchmark.simulated import RING, SimulatedBoard
from fastflight_benchmark.suites.transfer import folders, limits
from fastflight_benchmark.suites.transfer import report as transfer_report
from fastflight_benchmark.suites.transfer import summary as transfer_summary
from fastflight_benchmark.suites.transfer.carriers import (
    MPREMOTE,
    MPREMOTE_PTY,
    AsyncCarrier,
    Carrier,
    MpremoteCarrier,
    PortName,
    SyncCarrier,
    check_path,
)
from fastflight_benchmark.suites.transfer.contents import ASYNC, DOWNLOAD, KINDS, OURS, SYNC, UPLOAD, Kind, make
from fastflight_benchmark.suites.transfer.summary import CELL, FIRST, RAW_COLUMNS, STEADY, TUNING, WITHOUT_PACE

KB, MB = 1_000, 1_000_000
# The baud rate for opening a line without a pace: the highest rate that systems accept.
HIGHEST_BAUD = 4_000_000
# Size of the first transfer of a connection. It is small, because its extra time is the same for all sizes. It has the
# content of the cell, because other content may need other code on the board.
FIRST_SIZE = 4 * KB
# A cell whose four transfers take longer than the first value is run with random bytes only. A cell that takes longer
# than the second value is run once.
LONGEST_CELL_SECONDS, OFTEN_CELL_SECONDS = 30.0, 3.0
# The same limit in the sweep of chunks and drains, which has many cells.
OFTEN_TUNED_SECONDS = 0.6
# Transfers of a few milliseconds vary widely. A visit repeats them for about this long, and at most this often.
ROUNDS_SECONDS, MOST_ROUNDS = 0.1, 7
# The share of text that is left after deflate: in fact a quarter to a third, but not all of it is deflated.
ASSUMED_DEFLATED = 0.5
# For the estimate of the whole time: the connections of a visit, and the rates of a line without a pace and of
# mpremote.
ASSUMED_VISIT_SECONDS, ASSUMED_BYTES_PER_SECOND, ASSUMED_MPREMOTE = 0.4, 2e6, 30e3

NOT_BY_OPTION = "this version's serial:// has no such option"


@dataclass(frozen=True, slots=True)
class Scope:
    """The values of the sweep. `peers` has, by line and content, the sizes that mpremote transfers too."""

    lines: Sequence[int]
    sizes: Sequence[int]
    contents: Sequence[Kind]
    peers: dict[int, dict[Kind, Sequence[int]]]
    chunks: Sequence[int]
    drains: Sequence[int]
    # Line and size of the sweep of chunks and drains.
    tuned: Sequence[tuple[int, int]]
    # Longer transfers are not run.
    longest_transfer_seconds: float
    # The lines over which whole commands copy folders.
    folders: Sequence[int]


FULL = Scope(
    lines=(115_200, 460_800, 921_600, 3_000_000, WITHOUT_PACE),
    sizes=(KB, 5 * KB, 10 * KB, 50 * KB, 100 * KB, MB),
    contents=KINDS,
    peers={
        115_200: {"random": (KB, 5 * KB, 10 * KB), "csv": (10 * KB,), "python": (10 * KB,)},
        460_800: {"random": (10 * KB,)},
        921_600: {"random": (10 * KB,)},
        3_000_000: {"random": (10 * KB,)},
        WITHOUT_PACE: {"random": (10 * KB, 100 * KB, MB), "csv": (100 * KB,), "python": (100 * KB,)},
    },
    chunks=(256, 512, 1024, 2048, 4096),
    drains=(512, 1024, 2048, 4096),
    tuned=((115_200, 10 * KB), (921_600, 50 * KB)),
    longest_transfer_seconds=15.0,
    folders=(WITHOUT_PACE, 921_600, 115_200),
)
QUICK = Scope(
    lines=(115_200, 921_600, WITHOUT_PACE),
    sizes=(KB, 10 * KB, 100 * KB),
    contents=("random", "csv"),
    peers={115_200: {"random": (KB,)}, WITHOUT_PACE: {"random": (10 * KB,)}},
    chunks=(256, 4096),
    drains=(512, 4096),
    tuned=((921_600, 10 * KB),),
    longest_transfer_seconds=2.0,
    folders=(WITHOUT_PACE,),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One content over one line. `chunk` and `drain` 0: the transport's own choice."""

    line: int
    content: Kind
    size: int
    paths: tuple[str, ...] = OURS
    peers: tuple[str, ...] = ()
    chunk: int = 0
    drain: int = 0
    once: bool = False
    # Why the cell is not run; empty if it is.
    skipped: str = ""
    operations: tuple[str, ...] = (UPLOAD, DOWNLOAD)

    @property
    def key(self) -> dict[str, Any]:
        """The values of its columns."""
        return {name: getattr(self, name) for name in CELL}

    @property
    def rounds(self) -> int:
        """How often each path is measured in a visit."""
        return max(1, min(MOST_ROUNDS, round(ROUNDS_SECONDS / transfer_seconds(self.line, self.size))))

    @property
    def seconds(self) -> float:
        """The estimated duration of a visit."""
        ours = (
            (1.0 if self.content == "random" else ASSUMED_DEFLATED)
            * len(self.operations)
            * (
                self.rounds * len(self.paths) * transfer_seconds(self.line, self.size)
                + transfer_seconds(self.line, FIRST_SIZE)
            )
        )
        # mpremote sends about three bytes for a random one.
        rate = min(ASSUMED_MPREMOTE, self.line / limits.BITS_PER_BYTE / 3 or ASSUMED_MPREMOTE)
        return ASSUMED_VISIT_SECONDS + ours + len(self.peers) * len(self.operations) * self.size / rate


@dataclass(slots=True)
class Visit:
    """A cell in a run, on a board."""

    cell: Cell
    run: int
    paths: Sequence[str]
    board: SimulatedBoard
    limit: limits.Limits
    rows: list[dict[str, Any]] = field(default_factory=list)
    round: int = 1


def transfer_seconds(line: int, size: int) -> float:
    """Return the least seconds of a transfer of random bytes."""
    return size / (line / limits.BITS_PER_BYTE if line else ASSUMED_BYTES_PER_SECOND)


def plan(scope: Scope, *, tunable: bool) -> list[Cell]:
    """Return all cells, including the ones that are skipped."""
    cells = []
    for line, content, size in itertools.product(scope.lines, scope.contents, scope.sizes):
        peers = (MPREMOTE, MPREMOTE_PTY) if size in scope.peers.get(line, {}).get(content, ()) else ()
        transfer = transfer_seconds(line, size)
        once = len(OURS) * 2 * transfer > OFTEN_CELL_SECONDS or bool(peers) and size >= MB
        reason = _reason(scope, content, transfer)
        cells.append(Cell(line, content, size, peers=peers, once=once, skipped=reason))
    for (line, size), chunk, drain in itertools.product(scope.tuned, scope.chunks, scope.drains):
        cells.append(
            Cell(
                line,
                "random",
                size,
                (ASYNC,),
                chunk=chunk,
                drain=drain,
                once=transfer_seconds(line, size) > OFTEN_TUNED_SECONDS,
                operations=(UPLOAD,),
                skipped="" if tunable else NOT_BY_OPTION,
            )
        )
    return cells


def _reason(scope: Scope, content: Kind, transfer: float) -> str:
    if transfer > scope.longest_transfer_seconds:
        return f"a transfer takes {transfer:.0f} s on this line"
    if content != "random" and len(OURS) * 2 * transfer > LONGEST_CELL_SECONDS:
        return "takes long on this line: random bytes only"
    return ""


def is_tunable() -> bool:
    """Whether a serial port takes `chunk` and `drain`."""
    try:
        parse_url("serial:///dev/ttyACM0?chunk=512&drain=1024")
    except RequestError:
        return False
    return True


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many transfers failed."""
    scope = scope or (QUICK if options.quick else FULL)
    cells = plan(scope, tunable=is_tunable())
    chosen = [
        [cell for cell in cells if not cell.skipped and (number == 1 or not cell.once)]
        for number in range(1, options.runs + 1)
    ]
    seconds = sum(cell.seconds for cells in chosen for cell in cells)
    options.console.print(
        f"{sum(map(len, chosen))} visits to simulated boards, about {report.duration(seconds)} in all"
    )
    line_model = {"ring": RING, "bits_per_byte": limits.BITS_PER_BYTE, "unpaced": "flow-controlled"}
    peers = {peer: importlib.metadata.version(peer) for peer in (folders.MPREMOTE, folders.MPYTOOL)}
    description = options.describe("transfer", scope, line_model=line_model, **peers)
    copies = options.runs * len(scope.folders) * len(folders.FOLDERS) * len(folders.TOOLS)
    with options.progress(sum(map(len, chosen)) + copies) as step:
        rows = list(_measured(chosen, step))
        copied = pd.DataFrame(folders.measured(scope.folders, options.runs, step), columns=folders.COLUMNS)
    raw = pd.DataFrame(rows, columns=RAW_COLUMNS)
    result = transfer_summary.aggregate(raw, map(asdict, cells))
    output.save(options.output, result, {"raw": raw, "folders": copied}, description)
    transfer_report.show(options.console, result, judged=not options.quick)
    folders.show(options.console, copied, transfer_report.line_name)
    # A copy of a peer that failed is a result, and shown as such.
    ours = copied[copied["tool"] == folders.FASTFLIGHT]
    errors = pd.concat([raw["error"], ours["error"]])
    failed = errors[errors != ""]
    report.show_end(options.console, description, failed, options.output)
    return len(failed)


def _measured(runs: Sequence[Sequence[Cell]], progress: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for number, cells in enumerate(runs, 1):
        for line, group in itertools.groupby(cells, key=lambda cell: cell.line):
            with (
                tempfile.TemporaryDirectory(prefix="fastflight-transfer-") as folder,
                SimulatedBoard(Path(folder) / "board", line) as board,
                PortName(Path(folder), board.path) as port,
            ):
                limit = limits.measure(board)
                for place, cell in enumerate(group):
                    # Each path comes first in half of the visits of a run, and in half of the visits to a cell.
                    paths = cell.paths if (number + place) % 2 else cell.paths[::-1]
                    visit = Visit(cell, number, paths, board, limit)
                    _visit(visit, port)
                    yield from visit.rows
                    progress(f"{transfer_report.line_name(line)}, {cell.content}, {cell.size:,} bytes")


def _visit(visit: Visit, port: Path) -> None:
    """Measure our paths, in an order that is reversed with each run, then the peers."""
    cell = visit.cell
    baud = cell.line or HIGHEST_BAUD
    tuning = f"&chunk={cell.chunk}&drain={cell.drain}" if cell.chunk else ""
    with Inventory({"board": f"serial://{port}?baud={baud}{tuning}"}) as inventory:
        device = inventory.device("board")
        content = make(cell.content, cell.size)
        for visit.round in range(1, cell.rounds + 1):
            for place, path in enumerate(visit.paths if visit.round % 2 else visit.paths[::-1]):
                with SyncCarrier(device) if path == SYNC else AsyncCarrier(device) as carrier:
                    check_path(carrier, path)
                    if (visit.round, place) == (1, 0):
                        _move(visit, carrier, FIRST, make(cell.content, FIRST_SIZE))
                    _move(visit, carrier, TUNING if tuning else STEADY, content)
    visit.round = 1
    for peer in cell.peers:
        with MpremoteCarrier(str(port) if peer == MPREMOTE else visit.board.path, baud) as carrier:
            check_path(carrier, peer)
            _move(visit, carrier, STEADY, content)


def _move(visit: Visit, carrier: Carrier, kind: str, content: bytes) -> None:
    """Carry out the operations of the cell. Check each in the board's own folder, and add a row for it."""
    for operation in visit.cell.operations:
        seconds, error = float("nan"), ""
        try:
            seconds = (_upload if operation == UPLOAD else _download)(visit.board, carrier, content)
        except FastFlightError as raised:
            error = str(raised)
        visit.rows.append(
            visit.cell.key
            | {
                "size": len(content),
                "operation": operation,
                "path": carrier.path,
                "kind": kind,
                "run": visit.run,
                "round": visit.round,
                "seconds": seconds,
                "limit_bytes_per_second": visit.limit.upload if operation == UPLOAD else visit.limit.download,
                "round_trip_seconds": visit.limit.round_trip_seconds,
                "error": error,
            }
        )


def _upload(board: SimulatedBoard, carrier: Carrier, content: bytes) -> float:
    file = board.folder / "up.bin"
    file.unlink(missing_ok=True)
    seconds = carrier.write("/up.bin", content)
    if not file.exists() or file.read_bytes() != content:
        raise DataError("the file on the board has other bytes than were sent", where="/up.bin")
    return seconds


def _download(board: SimulatedBoard, carrier: Carrier, content: bytes) -> float:
    (board.folder / "down.bin").write_bytes(content)
    found, seconds = carrier.read("/down.bin")
    if found != content:
        raise DataError("other bytes arrived than the file on the board has", where="/down.bin")
    return seconds
