"""Rounds on one stage: strike, judge, repair, use again without help, and check what is recorded."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.errors import BusyError, FastFlightError
from tests.campaigns.engine import Campaign, Fault, Invariant
from tests.campaigns.faulting.browsing import BROKEN, HttpGet, HttpPut, HttpSession, Relayed
from tests.campaigns.faulting.stage import FILES, TALKER, Stage
from tests.campaigns.faulting.strikes import UNRECORDED, draw, may_break
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
# While the work is struck, the server is asked so often what it promises.
ASK_SECONDS = 0.2
# A recording that has failed is tried again by itself, ever more seldom.
RECORDS_SECONDS = 60.0
READ_SECONDS = 60.0
# Rows that were looked at before are looked at again, so many of them; all of them in the end.
AGAIN = 300
PARTS = ".fastflight-*"

# The invariants of each round.
IN_TIME = "work ends in time"
DOCUMENTED = "each error is documented"
RIGHT = "files are the old or the new ones, and rows follow each other"
USABLE = "the same work succeeds again"
ACKNOWLEDGED = "acknowledged rows are there"
UNCHANGED = "rows stay as they were served"
RECORDING = "the recording goes on"
EACH_ROUND = (IN_TIME, DOCUMENTED, RIGHT, USABLE, ACKNOWLEDGED, UNCHANGED, RECORDING)

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


@dataclass(slots=True)
class Attempt:
    """How a work ended. If it is not over, its thread hangs, and is left behind."""

    error: BaseException | None = None
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The violated invariant, if any, what was found, and the code of a documented error."""

    violated: str = ""
    found: str = ""
    code: str = ""


class Trials:
    """Rounds on one stage, one after another. They report to `campaign`."""

    def __init__(self, campaign: Campaign, stage: Stage) -> None:
        self.stage = stage
        self.count = 0
        self._campaign = campaign
        # The rows of the talker's recording that the server has served. They must stay there unchanged.
        self._served: dict[int, bytes] = {}
        # From where rows are to be looked at; up to where they were promised before the fault, and since it struck.
        self._start = self._before = self._promised = 0

    def carry_out(self, chance: random.Random) -> None:
        """Carry out one fault, from its strike until everything is usable again."""
        self.count += 1
        work = chance.choices([made for _, made in WORKS], [weight for weight, _ in WORKS])[0](self.stage, chance)
        fault = draw(self.stage, work, chance)
        counts, violate = self._campaign.counts, self._campaign.violate
        what = f"{self.stage.line}, {work.name} ({work.mode}), {fault.kind}, {fault.detail}"
        self._ask()
        self._before = self._promised
        attempt = Attempt()
        self._campaign.strike(fault, lambda: self._attempt(work, attempt))
        judged = self._judged(work, attempt)
        if judged.code == BROKEN and not may_break(fault, work.way):
            violate(DOCUMENTED, f"{what}: the connection ended, where nothing breaks it: {attempt.error}")
        if self.stage.server.is_alive:
            self._ask()
        self.stage.repair()
        counts[f"{work.name}: {judged.code or 'completed'}"] += 1
        again = self._use(work)
        self._campaign.report.checked.update(EACH_ROUND)
        for each in (judged, again, *self._look(work, fault)):
            if each.violated:
                violate(each.violated, f"{what}: {each.found}")

    def at_end(self) -> dict[str, Invariant]:
        return {
            UNCHANGED: self._changed,
            "partial files are gone": self._left,
            "shutdowns succeed": lambda: self.stage.flaws,
        }

    def _changed(self) -> Iterator[str]:
        """Check all rows that were ever served."""
        kept = recorded(self.stage.direct(), TALKER, 0, 4 * READ_SECONDS)
        gone = [seq for seq in self._served if seq not in kept.rows]
        other = [seq for seq, data in self._served.items() if kept.rows.get(seq, data) != data]
        if gone or other:
            yield f"{len(gone)} rows that were served are gone, {len(other)} are others"
        yield from filter(None, map(flaw, stretches(kept)))

    def _left(self) -> Iterator[str]:
        for board in self.stage.boards.values():
            # One part for each folder may stay (decision 0004), where nothing was written since.
            left = [path.relative_to(board.folder) for path in board.folder.rglob(PARTS)]
            if len({path.parent for path in left}) < len(left):
                yield f"on a board are left {', '.join(map(str, left))}"
        if local := [path.name for path in (self.stage.folder / "local").rglob("*.part")]:
            yield f"here are left {', '.join(local)}"

    def _ask(self) -> None:
        self._promised = max(self._promised, self.stage.promised())

    def _attempt(self, work: Work, attempt: Attempt, *, ask: bool = True) -> Attempt:
        """Carry the work out in a thread. `ask` meanwhile which rows are promised: a fault may come at any moment."""

        def run() -> None:
            try:
                work.carry_out()
            except BaseException as error:
                attempt.error = error
            attempt.is_over = True

        thread = threading.Thread(target=run, name=f"work-{id(work)}", daemon=True)
        thread.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while ask and thread.is_alive() and time.monotonic() < deadline:
            self._ask()
            thread.join(ASK_SECONDS)
        thread.join(max(0.0, deadline - time.monotonic()))
        return attempt

    def _judged(self, work: Work, attempt: Attempt) -> Judgement:
        error = attempt.error
        if not attempt.is_over:
            return Judgement(IN_TIME, _where(work))
        if isinstance(error, TimeoutError):
            return Judgement(IN_TIME, f"nobody answered: {error}")
        code = code_of(error) if error is not None else ""
        if error is not None and not code:
            return Judgement(DOCUMENTED, "".join(traceback.format_exception(error))[-2500:])
        if found := work.flaw(error is None):
            return Judgement(RIGHT, f"{found} ({error or 'completed'})", code)
        return Judgement(found=str(error or ""), code=code)

    def _use(self, work: Work) -> Judgement:
        """Repeat the work without a fault until it completes."""
        began = time.monotonic()
        is_interrupted = False
        while True:
            judged = self._judged(work, self._attempt(work, Attempt(), ask=False))
            seconds = time.monotonic() - began
            if judged == Judgement():
                self._campaign.at_most("longest seconds until usable", round(seconds))
                return judged
            if judged.violated or seconds > USABLE_SECONDS:
                return Judgement(USABLE, f"after {seconds:.0f} s {judged.violated} {judged.code}: {judged.found}")
            if seconds > POLITE_SECONDS and BusyError.code in judged.code and not is_interrupted:
                is_interrupted = True
                self._campaign.counts["boards interrupted"] += 1
                with contextlib.suppress(FastFlightError), self.stage.client() as client:
                    client.exec(FILES, "0", interrupt=True).to_arrow()
            time.sleep(PAUSE_SECONDS)

    def _look(self, work: Work, fault: Fault) -> Iterator[Judgement]:
        """Check the recording: acknowledged rows, rows served before, and rows that a session received."""
        if trouble := self._trouble():
            yield Judgement(RECORDING, trouble)
        kept = recorded(self.stage.direct(), TALKER, max(0, self._start - AGAIN), READ_SECONDS)
        missing = {seq for first, last in kept.missing if last - first < RUN for seq in range(first, last + 1)}
        expected = range(self._start, self._promised)
        # What came while nothing could be recorded may be missing, and said to be; what was kept before may not.
        excused = {seq for seq in missing if seq >= self._before and fault.kind in UNRECORDED}
        if gone := [seq for seq in expected if seq not in kept.rows and seq not in excused]:
            yield Judgement(ACKNOWLEDGED, f"{len(gone)} are not, the first is {gone[0]}")
        self._campaign.counts["rows acknowledged"] += len(expected)
        other = [seq for seq, data in kept.rows.items() if self._served.get(seq, data) != data]
        if isinstance(work, Rows):
            other += [seq for seq, data in work.kept.rows.items() if kept.rows.get(seq, data) != data]
        if other:
            yield Judgement(UNCHANGED, f"{len(other)} are others than before, the first is {other[0]}")
        if found := next(filter(None, map(flaw, stretches(kept))), ""):
            yield Judgement(RIGHT, found)
        self._served.update(kept.rows)
        reached = max(kept.rows, default=0) + 1
        # A server that was started again goes on at the next million.
        begun = [seq for seq in kept.rows if seq % RUN == 0 and seq >= self._promised > 0]
        self._start = max(begun) if begun else max(self._start, reached)
        self._promised = self._start

    def _trouble(self) -> str:
        """Wait until the talker is recorded. Return what is wrong if it is not."""
        deadline = time.monotonic() + RECORDS_SECONDS
        state, before = "", -1
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception), self.stage.client() as client:
                (now,) = (each for each in client.recordings() if each.name == TALKER)
                if now.state == "recording" and before >= 0 and now.next_seq > before:
                    return ""
                state, before = now.state, now.next_seq if before < 0 else before
            time.sleep(PAUSE_SECONDS)
        return state or "the server says nothing of it"


def _where(work: Work) -> str:
    """Return the stack of a thread that hangs."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.name == f"work-{id(work)}" and thread.ident in frames:
            return "".join(traceback.format_stack(frames[thread.ident])[-6:])
    return "no frame"
