"""Carries out one fault after another on a stage: strike, judge, repair, and use again without help.

These ends are bad: acknowledged bytes or rows are missing (`LOST`) or different (`WRONG`), an error has neither a code
of ours nor a documented status (`UNTYPED`), the work does not end in time (`HUNG`), or it cannot be repeated (`STUCK`).
A browser's connection that ends without a reason is `UNTYPED` too, unless it was struck itself.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fastflight.errors import BusyError, FastFlightError
from tests.campaigns.faulting.browsing import BROKEN, HttpGet, HttpPut, HttpSession, Relayed
from tests.campaigns.faulting.stage import FILES, TALKER, Stage
from tests.campaigns.faulting.strikes import FULL, FULL_DISK, Strike, strike
from tests.campaigns.faulting.talker import flaw, recorded, stretches
from tests.campaigns.faulting.works import (
    RUN,
    Get,
    GetTree,
    Put,
    PutTree,
    Recording,
    Rows,
    Session,
    Work,
    code_of,
)

# From call to end, whatever strikes: more than all time limits of a transfer and its recovery together.
DEADLINE_SECONDS = 75.0
# After the fault is over, the work must complete within this; between two tries a client would wait a moment, too.
USABLE_SECONDS = 90.0
# A board that is busy for so long is interrupted once. In the middle of a step of a write, nothing else ends it.
POLITE_SECONDS = 60.0
PAUSE_SECONDS = 0.1
# A recording that has failed is tried again by itself, ever more seldom.
RECORDS_SECONDS = 60.0
READ_SECONDS = 60.0
# Rows that were looked at before are looked at again, so many of them; all of them in the end.
AGAIN = 300
PARTS = ".fastflight-*"

COMPLETED, TYPED = "completed", "typed"
LOST, WRONG, UNTYPED, HUNG, STUCK = BAD = ("lost", "wrong", "untyped", "hung", "stuck")

WORKS: Sequence[tuple[float, type[Work]]] = (
    (3, Put),
    (3, Get),
    (1.5, PutTree),
    (1.5, GetTree),
    (3, Session),
    (2, Recording),
    (1, HttpGet),
    (1, HttpPut),
    (1, HttpSession),
    (1, Relayed),
)


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """One fault: what struck where, what was done, how it ended, and after how long all was usable."""

    number: int
    line: str
    hop: str
    kind: str
    spec: str
    work: str
    mode: str
    struck: bool
    ended: str
    code: str
    reason: str
    seconds: float
    usable_seconds: float
    tries: int
    interrupted: bool


@dataclass(slots=True)
class _Attempt:
    error: BaseException | None = None
    is_over: bool = False


@dataclass(slots=True)
class StreamRegistry:
    """What the server has served of the talker's recording. It must stay there unchanged."""

    rows: dict[int, bytes] = field(default_factory=dict)
    # From where rows are to be looked at; up to where they were promised before the fault, and since it struck.
    start: int = 0
    before: int = 0
    promised: int = 0
    acknowledged: int = 0


class FaultTrials:
    """Faults on one stage, one after another."""

    def __init__(self, stage: Stage, seed: int, *, quick: bool = False) -> None:
        """`quick`: only faults that do not take long."""
        self._stage = stage
        self._seed = seed
        self._quick = quick
        self._registry = StreamRegistry()

    @property
    def acknowledged(self) -> int:
        """The acknowledged rows of the recording that were checked."""
        return self._registry.acknowledged

    def carry_out(self, number: int) -> FaultOutcome:
        """Carry out one fault, from its strike until everything is usable again."""
        stage = self._stage
        chance = random.Random(f"{self._seed} {stage.line} {number}")
        work = chance.choices([made for _, made in WORKS], [weight for weight, _ in WORKS])[0](stage, chance)
        strikes = strike(stage, work, chance, quick=self._quick)
        self._registry.before = self._registry.promised = max(self._registry.promised, stage.promised())
        strikes.apply()
        began = time.monotonic()
        attempt = _attempt(work)
        seconds = time.monotonic() - began
        struck = strikes.end()
        ended, code, reason = self._judged(work, attempt)
        if ended == TYPED and code == BROKEN and not strikes.may_break(work.way):
            ended, reason = UNTYPED, f"where nothing breaks a connection: {reason}"
        if stage.server.is_alive:
            self._registry.promised = max(self._registry.promised, stage.promised())
        stage.repair()
        began = time.monotonic()
        tries, interrupted, trouble = self._use(work)
        usable = time.monotonic() - began
        if trouble and ended not in BAD:
            ended, reason = STUCK, f"after {ended} {code} ({reason}): {trouble}"
        if (worse := self._look(work, strikes)) and ended not in BAD:
            ended, reason = worse
        return FaultOutcome(
            number, stage.line, strikes.hop, strikes.kind, strikes.spec, work.name, work.mode,
            struck, ended, code, reason, seconds, usable, tries, interrupted,
        )  # fmt: skip

    def finish(self) -> list[str]:
        """Check all rows that were ever served, the disks and the logs. Return what is wrong."""
        stage = self._stage
        wrong = list(stage.complaints())
        kept = recorded(stage.direct(), TALKER, 0, 4 * READ_SECONDS)
        gone = [seq for seq in self._registry.rows if seq not in kept.rows]
        other = [seq for seq, data in self._registry.rows.items() if kept.rows.get(seq, data) != data]
        if gone or other:
            wrong.append(f"{len(gone)} rows that were served are gone, {len(other)} are others")
        wrong += filter(None, map(flaw, stretches(kept)))
        for board in stage.boards.values():
            # One part for each folder may stay (decision 0004), where nothing was written since.
            left = [path.relative_to(board.folder) for path in board.folder.rglob(PARTS)]
            if len({path.parent for path in left}) < len(left):
                wrong.append(f"parts are left on a board: {', '.join(map(str, left))}")
        local = [path.name for path in (stage.folder / "local").rglob("*.part")]
        if local:
            wrong.append(f"parts are left here: {', '.join(local)}")
        return wrong

    def _judged(self, work: Work, attempt: _Attempt) -> tuple[str, str, str]:
        """Return how it ended, the code, and the reason."""
        if not attempt.is_over:
            return HUNG, "", _where(work)
        error = attempt.error
        code = code_of(error) if error is not None else ""
        if isinstance(error, TimeoutError):
            return HUNG, "", f"nobody answered: {error}"
        if error is not None and not code:
            return UNTYPED, "", "".join(traceback.format_exception(error))[-3000:]
        if found := work.flaw(error is None):
            return WRONG, code, f"{found} ({error or 'completed'})"
        return (COMPLETED, "", "") if error is None else (TYPED, code, str(error))

    def _use(self, work: Work) -> tuple[int, bool, str]:
        """Repeat the work without a fault until it completes.

        Return how many tries it took, whether the board had to be interrupted, and what is wrong.
        """
        began = time.monotonic()
        tries, interrupted = 0, False
        while True:
            tries += 1
            attempt = _attempt(work)
            ended, code, reason = self._judged(work, attempt)
            if ended == COMPLETED:
                return tries, interrupted, ""
            seconds = time.monotonic() - began
            if ended in BAD or seconds > USABLE_SECONDS:
                return tries, interrupted, f"try {tries} {ended} {code}: {reason}"
            if seconds > POLITE_SECONDS and BusyError.code in code and not interrupted:
                interrupted = True
                with contextlib.suppress(FastFlightError), self._stage.client() as client:
                    client.exec(FILES, "0", interrupt=True).to_arrow()
            time.sleep(PAUSE_SECONDS)

    def _look(self, work: Work, strikes: Strike) -> tuple[str, str] | None:
        """Check the recording: acknowledged rows, rows served before, and rows that a session received."""
        registry = self._registry
        told = self._records()
        kept = recorded(self._stage.direct(), TALKER, max(0, registry.start - AGAIN), READ_SECONDS)
        missing = {seq for first, last in kept.missing if last - first < RUN for seq in range(first, last + 1)}
        expected = range(registry.start, registry.promised)
        # Of a disk that was full, what came meanwhile may be missing, and said to be; what was kept before may not.
        excused = {seq for seq in missing if seq >= registry.before and strikes.kind in (FULL, FULL_DISK)}
        gone = [seq for seq in expected if seq not in kept.rows and seq not in excused]
        registry.acknowledged += len(expected)
        other = [seq for seq, data in kept.rows.items() if registry.rows.get(seq, data) != data]
        if isinstance(work, Rows):
            other += [seq for seq, data in work.kept.rows.items() if kept.rows.get(seq, data) != data]
        registry.rows.update(kept.rows)
        reached = max(kept.rows, default=0) + 1
        # A server that was started again goes on at the next million.
        begun = [seq for seq in kept.rows if seq % RUN == 0 and seq >= registry.promised > 0]
        registry.start = max(begun) if begun else max(registry.start, min(registry.promised, reached))
        registry.promised = max(registry.start, 0)
        if gone:
            return LOST, f"{len(gone)} rows that were promised are not there, the first is {gone[0]}"
        if other:
            return WRONG, f"{len(other)} rows are others than before, the first is {other[0]}"
        if found := next(filter(None, map(flaw, stretches(kept))), ""):
            return WRONG, found
        return (STUCK, told) if told else None

    def _records(self) -> str:
        """Wait until the talker is recorded. Return what is wrong if it is not."""
        deadline = time.monotonic() + RECORDS_SECONDS
        state, before = "", -1
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception), self._stage.client() as client:
                (now,) = (each for each in client.recordings() if each.name == TALKER)
                if now.state == "recording" and before >= 0 and now.next_seq > before:
                    return ""
                state, before = now.state, now.next_seq if before < 0 else before
            time.sleep(PAUSE_SECONDS)
        return f"the recording does not go on: {state}"


def _attempt(work: Work) -> _Attempt:
    """Carry it out in a thread. A thread that hangs is left behind."""
    attempt = _Attempt()

    def run() -> None:
        try:
            work.carry_out()
        except BaseException as error:
            attempt.error = error
        attempt.is_over = True

    thread = threading.Thread(target=run, name=f"work-{id(work)}", daemon=True)
    thread.start()
    thread.join(DEADLINE_SECONDS)
    return attempt


def _where(work: Work) -> str:
    """Return the stack of a thread that hangs."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.name == f"work-{id(work)}" and thread.ident in frames:
            return "".join(traceback.format_stack(frames[thread.ident])[-6:])
    return "no frame"


def warm_up() -> None:
    """Let Arrow load what its first conversion needs."""
    pa.array([0])
