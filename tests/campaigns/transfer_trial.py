"""One transfer under faults: whether it ends right or with a typed error, and the board stays usable.

The number of a transfer determines everything about it: direction, path, size, content, fault and place, so a transfer
that went wrong can be repeated. `Station` is one board with its transfers; it judges by the files in the board's
folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fastflight.device import Device, Inventory
from fastflight.errors import FastFlightError
from fastflight_benchmark.contents import (
    ASYNC,
    DOWNLOAD,
    HOLDER,
    KINDS,
    SYNC,
    UPLOAD,
    Kind,
    make,
    pieces,
)
from fastflight_benchmark.simulated import SimulatedBoard

# From call to end, whatever strikes: more than all the time limits of a transfer and its recovery together.
DEADLINE_SECONDS = 90.0
SMALLEST, LARGEST = 1_000, 20_000
# What a transfer has on the line beside the file's bytes: code, frames, acknowledgements.
OVERHEAD_BYTES = 1_500
ANSWER_BYTES = 300
# Files of a board: the one that is written, and the one that is read.
TARGET, SOURCE = "target.bin", "source.bin"
# Line, ring and name of each board of a campaign, in turn: the rings of real boards.
BOARDS = (
    (0, 512, "simulator"),
    (3_000_000, 512, "rp2"),
    (3_000_000, 260, "esp32"),
    (0, 512, "simulator"),
    (921_600, 256, "esp8266"),
    (3_000_000, 128, "samd"),
)

# How each ended; the first two are right.
COMPLETED, TYPED, WRONG, UNTYPED, HUNG, STUCK = "completed", "typed", "wrong", "untyped", "hung", "stuck"
BAD = (WRONG, UNTYPED, HUNG, STUCK)


@dataclass(frozen=True, slots=True)
class TransferCase:
    """One transfer, and the faults that are in force during it."""

    number: int
    operation: str
    path: str
    content: Kind
    size: int
    fault: str
    specs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransferOutcome:
    """How a case ended: one of the words above, and why if it is not `completed`."""

    case: TransferCase
    ended: str
    reason: str
    seconds: float
    struck: tuple[str, ...]
    # The board: its line, 0 without a pace, and its receive ring.
    baud: int
    ring: int
    # What the next transfer, without faults, took.
    next_seconds: float


def case(seed: int, number: int) -> TransferCase:
    """Return the transfer `number` of the campaign `seed`."""
    chance = random.Random(f"{seed} {number}")
    fault = list(FAULTS)[number % len(FAULTS)]
    operation = chance.choice((UPLOAD, DOWNLOAD))
    size = round(SMALLEST * (LARGEST / SMALLEST) ** chance.random())
    return TransferCase(
        number,
        operation,
        chance.choice((SYNC, ASYNC)),
        chance.choice(KINDS),
        size,
        fault,
        tuple(FAULTS[fault](chance, operation, size)),
    )


def _at(way: str) -> Callable[[random.Random, str, int], int]:
    """A place in the traffic of one direction: anywhere where the bytes go, near the start where answers go."""

    def place(chance: random.Random, operation: str, size: int) -> int:
        carries = (operation == UPLOAD) == (way == "rx")
        return chance.randrange(1, size + OVERHEAD_BYTES if carries else ANSWER_BYTES)

    return place


def _strike(name: str, way: str) -> Callable[[random.Random, str, int], list[str]]:
    return lambda chance, operation, size: [f"{name}={_at(way)(chance, operation, size)}"]


def _several(chance: random.Random, operation: str, size: int) -> list[str]:
    names = ("lose-rx", "lose-tx", "flip-rx", "flip-tx", "overflow-rx", "reset-after-rx", "reset-after-tx")
    chosen = chance.choices(names, k=chance.randrange(2, 5))
    return [f"{name}={_at(name[-2:])(chance, operation, size)}" for name in chosen]


# By the word for it: the specs (`fastflight.simulator.faults`) of a transfer of so many bytes.
FAULTS: Mapping[str, Callable[[random.Random, str, int], list[str]]] = {
    "none": lambda chance, operation, size: [],
    "byte to board lost": _strike("lose-rx", "rx"),
    "byte from board lost": _strike("lose-tx", "tx"),
    "byte to board changed": _strike("flip-rx", "rx"),
    "byte from board changed": _strike("flip-tx", "tx"),
    "ring overflows": _strike("overflow-rx", "rx"),
    "reset while receiving": _strike("reset-after-rx", "rx"),
    "reset while sending": _strike("reset-after-tx", "tx"),
    "cut while receiving": _strike("unplug-after-rx", "rx"),
    "cut while sending": _strike("exit-after-tx", "tx"),
    "stall while receiving": _strike("stall-after-rx", "rx"),
    "stall while sending": _strike("stall-after-tx", "tx"),
    "slow flash": lambda chance, operation, size: [f"flash-stall={chance.randrange(5, 40)}"],
    "storage full": lambda chance, operation, size: [f"full-after={chance.randrange(size)}"],
    "noise": lambda chance, operation, size: [f"drop-rx={chance.choice((0.0003, 0.001, 0.01))}"],
    "several": _several,
}


@dataclass(slots=True)
class Attempt:
    """The result of a transfer: an error, or the bytes that were read; neither while it runs."""

    error: BaseException | None = None
    content: bytes | None = None
    thread: threading.Thread = field(default_factory=threading.Thread)


class Station:
    """A board, its device, and a campaign's transfers on it, one after another."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._port = folder / "port"
        self._baud, self._ring, name = BOARDS[number % len(BOARDS)]
        self._board = SimulatedBoard(folder / "board", self._baud, "--platform", name, ring=self._ring)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._board.__enter__()
        self._plug()
        self._renew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A transfer that hangs ends with its line, which is not there to be closed.
        with contextlib.suppress(FastFlightError):
            self._inventory.close()
        self._board.stop()

    def carry_out(self, case: TransferCase) -> TransferOutcome:
        """Carry out the transfer under its faults, then the same without them."""
        content = make(case.content, case.size)
        old = make("python", case.size // 2)
        (self._board.folder / TARGET).write_bytes(old)
        (self._board.folder / SOURCE).write_bytes(content)
        self._board.inject(case.specs)
        began = time.perf_counter()
        attempt = self._attempt(case, content)
        seconds = time.perf_counter() - began
        ended, reason = self.judge(case, attempt, content, old)
        struck = tuple(self._board.mend())
        if not self._board.is_alive:
            self._board.stop()
            self._board.start()
            self._plug()
        if ended == HUNG:
            self._renew()
        began = time.perf_counter()
        again = self._attempt(case, content)
        next_seconds = time.perf_counter() - began
        went, why = self.judge(case, again, content, old)
        if went != COMPLETED and ended not in BAD:
            ended, reason = STUCK, f"after {ended} ({reason or 'no error'}) the next transfer {went}: {why}"
        if ended == STUCK or went == HUNG:
            # The next case is not to suffer from this one.
            self._board.stop()
            self._board.start()
            self._plug()
            self._renew()
        return TransferOutcome(case, ended, reason, seconds, struck, self._baud, self._ring, next_seconds)

    def _attempt(self, case: TransferCase, content: bytes) -> Attempt:
        """Transfer in a thread. A thread that hangs is left behind."""
        device, attempt = self._inventory.device("board"), Attempt()

        def work() -> None:
            try:
                if case.path == SYNC:
                    attempt.content = transfer(device, case.operation, content)
                else:
                    attempt.content = asyncio.run(atransfer(device, case.operation, content))
            except BaseException as error:
                attempt.error = error

        attempt.thread = threading.Thread(target=work, name=f"transfer-{case.number}", daemon=True)
        attempt.thread.start()
        attempt.thread.join(DEADLINE_SECONDS)
        return attempt

    def judge(self, case: TransferCase, attempt: Attempt, content: bytes, old: bytes) -> tuple[str, str]:
        """Return how it ended, and why."""
        if attempt.thread.is_alive():
            frame = sys._current_frames().get(attempt.thread.ident or 0)
            return HUNG, "".join(traceback.format_stack(frame)[-6:]) if frame else "no frame"
        file = self._board.folder / TARGET
        lies = file.read_bytes() if file.exists() else b""
        if attempt.error is not None:
            # The root of the tree says only that something was not foreseen.
            if not isinstance(attempt.error, FastFlightError) or attempt.error.code == FastFlightError.code:
                return UNTYPED, "".join(traceback.format_exception(attempt.error))
            # The answer to the last step may be what was lost: then the new file is in place, and whole.
            if case.operation == UPLOAD and lies not in (old, content):
                return WRONG, f"{attempt.error}, and the old file is not whole"
            return TYPED, f"{type(attempt.error).__name__}: {attempt.error}"
        found = lies if case.operation == UPLOAD else attempt.content
        return (COMPLETED, "") if found == content else (WRONG, "completed with other bytes")

    def _plug(self) -> None:
        """Let the board's name lead to its terminal, which changes with each start."""
        fresh = self._folder / "port-new"
        os.symlink(self._board.path, fresh)
        os.replace(fresh, self._port)

    def _renew(self) -> None:
        """Make a new device for the same board. One that hangs is left behind."""
        baud = f"?baud={self._baud}" if self._baud else "?baud=4000000"
        self._inventory = Inventory({"board": f"serial://{self._port}{baud}"})


def transfer(device: Device, operation: str, content: bytes) -> bytes:
    """Move a file on the sync path. Return what was read."""
    with device.lease(HOLDER) as session:
        if operation == DOWNLOAD:
            return b"".join(session.read(f"/{SOURCE}"))
        session.write(f"/{TARGET}", iter((content,)))
        return b""


async def atransfer(device: Device, operation: str, content: bytes) -> bytes:
    """`transfer` on the async path."""
    async with device.alease(HOLDER) as session:
        if operation == DOWNLOAD:
            return b"".join([piece async for piece in session.read(f"/{SOURCE}")])
        await session.write(f"/{TARGET}", pieces(content))
        return b""
