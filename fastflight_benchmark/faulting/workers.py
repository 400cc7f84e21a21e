"""Faults of `serve --workers 2`: a worker, or the front, is killed while rows come by way of it.

Each worker has a device. What moves at the one that is killed must end in a typed error; what moves at the other one
must not notice, unless it is the front that is killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastflight.client import FastFlightClient
from fastflight_benchmark.contents import make
from fastflight_benchmark.faulting.program import Program
from fastflight_benchmark.faulting.trial import BAD, COMPLETED, HUNG, STUCK, TYPED, UNTYPED, WRONG, Outcome
from fastflight_benchmark.faulting.works import code_of

WORKERS = "workers"
FRONT_WORKER, FRONT = "front - worker", "front"
# Enough that each of two workers has one of them.
NAMES = tuple(f"d{number}" for number in range(6))
# A line that carries this much moves a file in about a second: time to kill somebody in.
BAUD, SIZE = 230_400, 20_000
DEADLINE_SECONDS = 75.0
USABLE_SECONDS = 75.0


class WorkerTrials:
    """Faults on a front with two workers, one after another."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        serving = ["serve", "--server", "grpc://127.0.0.1:0", "--workers", "2"]
        for name in NAMES:
            serving += ["--device", f"{name}=sim:?files={folder / name}&telemetry=0&baud={BAUD}"]
        self._server = Program("front", serving, [r"listening on (grpc://127.0.0.1:\d+)"], folder / "front.log")

    def __enter__(self) -> Self:
        for name in NAMES:
            (self._folder / name).mkdir()
        self._location = self._server.start()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()

    def carry_out(self, number: int) -> Outcome:
        """One process killed while two files move, one at each worker."""
        chance = random.Random(f"{self._seed} {number}")
        victim, other = self._workers(chance)
        hop = chance.choice((FRONT_WORKER, FRONT_WORKER, FRONT))
        reads = chance.choice((True, False))
        moves = [_Move(self._location, self._folder, worker["devices"][0], reads) for worker in (victim, other)]
        for move in moves:
            move.start()
        seconds = chance.uniform(0.1, 1.0)
        time.sleep(seconds)
        # On a line that was quicker than it should be, nothing moved any more.
        struck = moves[0].is_alive()
        began = time.monotonic()
        if hop == FRONT:
            self._server.kill()
        else:
            os.kill(victim["pid"], signal.SIGKILL)
        judged = [move.judged(DEADLINE_SECONDS) for move in moves]
        took = time.monotonic() - began
        ended, code, reason = judged[0]
        if ended not in BAD and judged[1][0] != COMPLETED and (hop != FRONT or judged[1][0] in BAD):
            ended, reason = WRONG, f"the other worker's device: {judged[1]}"
        if hop == FRONT:
            self._location = self._server.start()[0]
        began = time.monotonic()
        tries, trouble = self._use(moves[0])
        if trouble and ended not in BAD:
            ended, reason = STUCK, f"after {ended} {code} ({reason}): {trouble}"
        spec = f"kill -9 {hop} after {seconds:.3f} s"
        return Outcome(
            number, WORKERS, hop, "kill -9", spec, "get" if reads else "put", "async",
            struck, ended, code, reason, took, time.monotonic() - began, tries,
        )  # fmt: skip

    def finish(self) -> list[str]:
        """What went wrong that nobody foresaw, in the log of the front and its workers."""
        return list(self._server.complaints())

    def _workers(self, chance: random.Random) -> tuple[Any, Any]:
        """One to be killed, and another; once both serve, and have a device."""
        deadline = time.monotonic() + USABLE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception), FastFlightClient(self._location, timeout=20) as client:
                both: Any = client.stats()["workers"]
                if all(each["status"] == "serving" and each["devices"] for each in both):
                    first = chance.randrange(2)
                    return both[first], both[1 - first]
            time.sleep(0.1)
        raise RuntimeError("the workers do not come back")

    def _use(self, move: _Move) -> tuple[int, str]:
        deadline = time.monotonic() + USABLE_SECONDS
        tries = 0
        while True:
            tries += 1
            again = _Move(self._location, self._folder, move.device, move.reads)
            again.start()
            ended, code, reason = again.judged(DEADLINE_SECONDS)
            if ended == COMPLETED:
                return tries, ""
            if ended in BAD or time.monotonic() > deadline:
                return tries, f"try {tries} {ended} {code}: {reason}"
            time.sleep(0.1)


class _Move(threading.Thread):
    """A file on its way from or to a device."""

    def __init__(self, location: str, folder: Path, device: str, reads: bool) -> None:
        super().__init__(name=f"move-{device}", daemon=True)
        self.device = device
        self.reads = reads
        self._location = location
        self._new, self._old = make("random", SIZE), make("python", SIZE // 2)
        board, here = folder / device / "f.bin", folder / f"{device}.bin"
        self._given, self._taken = (board, here) if reads else (here, board)
        self._given.write_bytes(self._new)
        self._taken.write_bytes(self._old)
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            with FastFlightClient(self._location, timeout=30) as client:
                if self.reads:
                    client.get_file(self.device, "/f.bin", self._taken)
                else:
                    client.put_file(self.device, "/f.bin", self._given)
        except BaseException as error:
            self._error = error

    def judged(self, seconds: float) -> tuple[str, str, str]:
        """How it ended, by which code, and why; waits so long."""
        self.join(seconds)
        if self.is_alive():
            return HUNG, "", "it does not end"
        lies = self._taken.read_bytes()
        if self._error is None:
            return (COMPLETED, "", "") if lies == self._new else (WRONG, "", "completed with other bytes")
        code = code_of(self._error)
        if not code:
            return UNTYPED, "", repr(self._error)
        if lies not in (self._old, self._new):
            return WRONG, code, "neither the old nor the new file is there"
        return TYPED, code, str(self._error)
