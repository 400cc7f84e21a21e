"""Suite `transfer`: files to and from a simulated board, by line speed, size and content, beside mpremote; and folders.

A visit measures one cell: on a new connection, both paths of fastflight move the file in both directions, and then
mpremote does so on the same port. The first transfer of a connection also installs code on the board, so it is a part
of its own. `line` is the time in which the line moves as many bytes; compressed uploads of text can be faster. All
cells would take hours: transfers that take long are left out.

Then whole commands copy a folder to an empty board, and the same folder again: `fastflight` without a server, mpremote
and mpytool, as processes, timed from start to end. The files in the board's folder show whether the outcome is correct.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.errors import DataError, TransportError
from fastflight_benchmark.contenders import ASYNC, MODES, SYNC
from fastflight_benchmark.contents import DOWNLOAD, KINDS, UPLOAD, Kind, make
from fastflight_benchmark.engine import LESS, Bench, Measure, Suite
from fastflight_benchmark.peers.carriers import (
    MPREMOTE,
    MPREMOTE_PTY,
    AsyncCarrier,
    Carrier,
    MpremoteCarrier,
    PortName,
    SyncCarrier,
    check_path,
)
from fastflight_benchmark.processes import finished, users_environment
from fastflight_benchmark.result import Label
from fastflight_benchmark.simulated import SimulatedBoard

LINE, FASTFLIGHT, MPYTOOL = "line", "fastflight", "mpytool"
TOOLS = (FASTFLIGHT, MPYTOOL, MPREMOTE)
FIRST, STEADY, FOLDER = "first transfer", "file", "folder"
NEW, UNCHANGED = "new", "unchanged"
BITS_PER_BYTE = 10
# The line speed that stands for a line without a pace, and the baud rate with which tools open it: the highest that
# systems accept.
WITHOUT_PACE, HIGHEST_BAUD = 0, 4_000_000
# Size of the first transfer of a connection. It is small, because its extra time is the same for all sizes. It has the
# content of the cell, because other content may need other code on the board.
FIRST_SIZE = 4_000
# A cell whose transfers take longer than this has random bytes only, and is run once.
LONG_CELL_SECONDS = 8.0
# mpremote takes part in cells that it finishes within this time: it sends about three bytes for a random one.
MPREMOTE_SECONDS, MPREMOTE_BYTES_PER_SECOND = 4.0, 30e3
# Transfers of a few milliseconds vary widely. A visit repeats them for about this long, and at most this often.
ROUNDS_SECONDS, MOST_ROUNDS, ASSUMED_BYTES_PER_SECOND = 0.1, 5, 2e6
# A limit far above need: mpremote takes 70 s for 200 kB at 115200.
COPY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Scope:
    """Lines in baud, sizes in bytes, the longest transfer that is run, and the lines over which folders are copied."""

    lines: tuple[int, ...]
    sizes: tuple[int, ...]
    longest_seconds: float
    folder_lines: tuple[int, ...]


FULL = Scope(
    (115_200, 460_800, 921_600, 3_000_000, WITHOUT_PACE),
    (1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000),
    15.0,
    (WITHOUT_PACE, 921_600, 115_200),
)
QUICK = Scope((115_200, WITHOUT_PACE), (1_000, 10_000), 1.0, (WITHOUT_PACE,))


@dataclass(frozen=True, slots=True)
class Visit:
    """One content of one size over one line, in a run. `rounds` are the numbers of its rounds."""

    line: int
    content: Kind
    size: int
    rounds: range

    def cell(self, part: str, operation: str) -> dict[str, Label]:
        size = FIRST_SIZE if part == FIRST else self.size
        return {"part": part, "baud": self.line, "content": self.content, "bytes": size, "operation": operation}


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of text files of one size."""

    name: str
    files: int
    size: int

    def fill(self, folder: Path) -> None:
        """Make the files. Each has other content."""
        text = make("csv", self.size + self.files)
        folder.mkdir()
        for number in range(self.files):
            (folder / f"file{number}.csv").write_bytes(text[number : number + self.size])


FOLDERS = (Folder("4 x 50 kB", 4, 50_000), Folder("50 x 4 kB", 50, 4_000))


def seconds(line: int, size: int) -> float:
    """Return the least seconds of a transfer of random bytes."""
    return size / (line / BITS_PER_BYTE if line else ASSUMED_BYTES_PER_SECOND)


def plan(scope: Scope, run_: int) -> Iterator[Visit]:
    """Yield the visits of a run, by line."""
    for line, content, size in itertools.product(scope.lines, KINDS, scope.sizes):
        least = seconds(line, size)
        is_long = 2 * len(MODES) * least > LONG_CELL_SECONDS
        if least <= scope.longest_seconds and not (is_long and (content != "random" or run_ > 1)):
            each = max(1, min(MOST_ROUNDS, round(ROUNDS_SECONDS / least)))
            yield Visit(line, content, size, range((run_ - 1) * each + 1, run_ * each + 1))


def run(bench: Bench) -> None:
    """Move single files, and then folders."""
    scope = bench.scope(FULL, QUICK)
    bench.facts["versions"] = {peer: importlib.metadata.version(peer) for peer in (MPREMOTE, MPYTOOL)}
    for number in bench.rounds():
        for line, visits in itertools.groupby(plan(scope, number), key=lambda visit: visit.line):
            with (
                tempfile.TemporaryDirectory(prefix="fastflight-transfer-") as folder,
                SimulatedBoard(Path(folder) / "board", line) as board,
                PortName(Path(folder), board.path) as port,
            ):
                for visit in visits:
                    _visited(bench, visit, board, port)
        for line, folder_ in itertools.product(scope.folder_lines, FOLDERS):
            for tool in bench.order(TOOLS, number):
                _copied(bench, tool, folder_, line, number)


def _visited(bench: Bench, visit: Visit, board: SimulatedBoard, port: Path) -> None:
    """Measure our paths in turns, then mpremote. The operations that `--only` leaves out are not run."""
    content = make(visit.content, visit.size)
    baud = visit.line or HIGHEST_BAUD
    wanted = {
        name: [way for way in (UPLOAD, DOWNLOAD) if bench.wants(visit.cell(STEADY, way), name)]
        for name in (*MODES, MPREMOTE, MPREMOTE_PTY)
    }
    with (
        Shards(1, "transfer") as shards,
        Inventory({"board": f"serial://{port}?baud={baud}"}, shards=shards) as inventory,
    ):
        device = inventory.device("board")
        for round_ in visit.rounds:
            for place, path in enumerate(bench.order(MODES, round_)):
                if not wanted[path]:
                    continue
                with SyncCarrier(device) if path == SYNC else AsyncCarrier(device, shards.of(device.name)) as carrier:
                    check_path(carrier, path)
                    if (round_, place) == (visit.rounds[0], 0):
                        first = [way for way in wanted[path] if bench.wants(visit.cell(FIRST, way), path)]
                        _move(bench, visit, FIRST, carrier, board, round_, make(visit.content, FIRST_SIZE), first)
                    _move(bench, visit, STEADY, carrier, board, round_, content, wanted[path])
    for way in wanted[SYNC] if visit.line else ():
        bench.add(visit.cell(STEADY, way), LINE, visit.rounds[0], time=seconds(visit.line, visit.size))
    if visit.size / min(MPREMOTE_BYTES_PER_SECOND, visit.line / BITS_PER_BYTE / 3 or 1e9) > MPREMOTE_SECONDS:
        return
    for peer in (MPREMOTE, MPREMOTE_PTY):
        if wanted[peer]:
            with MpremoteCarrier(str(port) if peer == MPREMOTE else board.path, baud) as carrier:
                check_path(carrier, peer)
                _move(bench, visit, STEADY, carrier, board, visit.rounds[0], content, wanted[peer])


def _move(
    bench: Bench,
    visit: Visit,
    part: str,
    carrier: Carrier,
    board: SimulatedBoard,
    round_: int,
    content: bytes,
    ways: Sequence[str],
) -> None:
    """Carry out the operations, and check each in the board's own folder."""
    for way in ways:
        cell = visit.cell(part, way)
        with bench.attempt(cell, carrier.path):
            took = (_upload if way == UPLOAD else _download)(board, carrier, content)
            bench.add(cell, carrier.path, round_, time=took)


def _upload(board: SimulatedBoard, carrier: Carrier, content: bytes) -> float:
    file = board.folder / "up.bin"
    file.unlink(missing_ok=True)
    took = carrier.write("/up.bin", content)
    if not file.exists() or file.read_bytes() != content:
        raise DataError("the file on the board has other bytes than were sent", where="/up.bin")
    return took


def _download(board: SimulatedBoard, carrier: Carrier, content: bytes) -> float:
    (board.folder / "down.bin").write_bytes(content)
    found, took = carrier.read("/down.bin")
    if found != content:
        raise DataError("other bytes arrived than the file on the board has", where="/down.bin")
    return took


def command(tool: str, port: str, baud: int, folder: str) -> list[str]:
    """Return the command that copies `folder` to a folder of the same name on the board."""
    program = str(Path(sys.executable).with_name(tool))
    if tool == FASTFLIGHT:
        return [program, "put", "-r", folder, ":/", "--device", f"serial://{port}?baud={baud}"]
    if tool == MPREMOTE:
        return [program, "connect", port, "cp", "-r", folder, ":"]
    return [program, "-p", port, "-b", str(baud), "cp", folder, ":/"]


def _copied(bench: Bench, tool: str, folder: Folder, line: int, round_: int) -> None:
    """Copy a folder to a new board, and again. A copy of a peer that failed is a result, and is said."""
    cells: dict[str, dict[str, Label]] = {
        state: {"part": FOLDER, "baud": line, "folder": folder.name, "state": state} for state in (NEW, UNCHANGED)
    }
    if not all(bench.wants(cell, tool) for cell in cells.values()):
        return
    with (
        tempfile.TemporaryDirectory(prefix="fastflight-folders-") as place,
        SimulatedBoard(Path(place) / "board", line) as board,
    ):
        here = Path(place) / "app"
        folder.fill(here)
        words = command(tool, board.path, line or HIGHEST_BAUD, here.name)
        for cell in cells.values():
            try:
                took = finished(words, COPY_SECONDS, folder=Path(place), environment=users_environment()).seconds
                there = board.folder / here.name
                for file in here.iterdir():
                    if not (there / file.name).is_file() or (there / file.name).read_bytes() != file.read_bytes():
                        raise DataError("a file on the board is not equal", where=f"{tool}, {file.name}")
                bench.add(cell, tool, round_, time=took)
            except (DataError, TransportError) as error:
                if tool == FASTFLIGHT:
                    bench.fail(str(cell), error)
                else:
                    bench.facts.setdefault("peers that failed", {})[f"{tool}, {line} baud, {folder.name}"] = str(error)
                    bench.say(f"{tool} failed: {error}")
                return


SUITE = Suite(
    name="transfer",
    title="Files and folders, to and from a board",
    measures={"time": Measure("s", LESS)},
    ours=(SYNC, ASYNC, FASTFLIGHT),
    references=(MPREMOTE, MPYTOOL, LINE),
    run=run,
)
