"""Hands the rows that this server records over to JetStream.

Recorders write to the embedded log of this server, the buffer. From there each row is copied to the shared recording
of the same name, with the same number, and in order. While NATS cannot be used, recording goes on in the buffer, and
what it holds is handed over later, also by the next process that opens the buffer. The buffer keeps the newest rows up
to its size, handed over or not; rows that it had to delete before they were handed over are a gap in the shared
recording, which says how many they are.

If another server has gone on with a recording meanwhile, its rows have larger numbers, and older ones cannot be stored
before them. Then the rows that were not handed over stay in the buffer, and a warning in the server's log names them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Generator, Iterator
from itertools import islice

import structlog

from fastflight.cluster.replicated_log import ReplicatedLog
from fastflight.cluster.replicated_store import ReplicatedStore
from fastflight.concurrency import Shard, off_loop
from fastflight.errors import BusyError, DataError, FastFlightError, Stopped
from fastflight.log import Extent, Log, Missing, NumberedRows, Range, Store, Ticket

log = structlog.get_logger(__name__)

# How often the buffer is checked for new rows.
CHECK_SECONDS = 0.1
# Before the next attempt after a failure.
RETRY_SECONDS = 1.0
# Logs that are handed over at the same time. Each has one message under way.
MAX_LOGS = 64
# Items of a log that are read in one step: records of the buffer, joined.
STEP_ITEMS = 32

Items = Generator[NumberedRows | Missing, None, None]
Step = list[NumberedRows | Missing]


class HandOver:
    """Copies all logs of `buffer` to `shared`, on the shard of the connection, until `close`.

    `token_of` returns the fencing token of the lease of a device, 0 if this server holds none.
    """

    def __init__(
        self, buffer: Store, shared: ReplicatedStore, shard: Shard, token_of: Callable[[str], int] = lambda name: 0
    ) -> None:
        self._buffer = buffer
        self._shared = shared
        self._shard = shard
        self._token_of = token_of
        # The number after the last row of each log that is handed over, and after the last one that was looked at.
        self._handed: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._copying: dict[str, asyncio.Task[None]] = {}
        # Why rows of a log cannot be handed over at the moment. The same reason is logged once for all logs.
        self._troubles: dict[str, str] = {}
        self._progress = asyncio.Event()
        self._limit = asyncio.Semaphore(MAX_LOGS)
        # Logs to read next, and who waits for what is read.
        self._reads: list[tuple[Items, asyncio.Future[Step]]] = []
        self._reading: asyncio.Task[None] | None = None
        self._running = shard.submit(self._run())

    def waiting(self, name: str) -> list[Extent]:
        """Return the rows of a log that are in the buffer and not in the shared recording yet."""
        if name not in self._buffer.names():
            return []
        return self._buffer.log(name).extents(Range(from_seq=self._handed.get(name, 0)))

    def drain(self, names: list[str], seconds: float) -> bool:
        """Wait until the present rows of logs are handed over, for at most `seconds`. Return whether they are."""
        return self._shard.submit(self._drained(names, seconds)).result()

    def close(self, seconds: float) -> None:
        """Hand over what is in the buffer, for at most `seconds`, and stop. The next start hands over the rest."""
        with contextlib.suppress(Stopped):
            if not self.drain(self._buffer.names(), seconds):
                log.warning(
                    "not all rows are handed over; that goes on at the next start",
                    reasons=sorted(set(self._troubles.values())),
                )
        self._running.cancel()
        concurrent.futures.wait([self._running])

    async def _run(self) -> None:
        try:
            while True:
                for name in self._buffer.beyond(self._seen):
                    if name not in self._copying:
                        task = asyncio.get_running_loop().create_task(self._hand_over(name))
                        self._copying[name] = task
                        task.add_done_callback(lambda _, name=name: self._copying.pop(name))  # type: ignore[misc]
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            for task in [*self._copying.values()]:
                task.cancel()

    async def _drained(self, names: list[str], seconds: float) -> bool:
        ends = {name: self._buffer.log(name).durable_end for name in names}

        def is_behind() -> bool:
            return any(end > self._seen.get(name, 0) for name, end in ends.items())

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while is_behind():
                    await self._progress.wait()
        return not is_behind()

    async def _hand_over(self, name: str) -> None:
        try:
            async with self._limit:
                source = self._buffer.log(name)
                end = source.durable_end
                await self._copy(source)
        except Exception as error:  # the task's edge: what fails now may work in a second
            trouble = error.what if isinstance(error, FastFlightError) else f"{type(error).__name__}: {error}"
            if trouble not in self._troubles.values():
                log.warning(
                    "recorded rows cannot be handed over; they stay in the buffer", device=name, error=str(error)
                )
            self._troubles[name] = trouble
            await asyncio.sleep(RETRY_SECONDS)
            return
        if self._troubles.pop(name, "") and not self._troubles:
            log.info("recorded rows are handed over again")
        self._seen[name] = end
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _copy(self, source: Log) -> None:
        """Hand over the rows of one log that are in the buffer now."""
        target = await self._shared.aopen(source.name, source.schema, token=self._token_of(source.name))
        position = await target.anext_seq()
        items = source.read(Range(from_seq=position))
        step = await self._read(items)
        if step and isinstance(step[0], Missing) and step[0].reason == "not recorded":
            # Another server may have recorded the device meanwhile.
            target.writer.forget()
            if (now := await target.anext_seq()) != position:
                position, items = now, source.read(Range(from_seq=now))
                step = await self._read(items)
        self._note_rows_left(source, position)
        # A shared recording that begins here has not lost what this server deleted before.
        paused_until = source.first if not position else 0
        pending: list[Ticket] = []
        more = True
        try:
            while more:
                for item in step:
                    if isinstance(item, Missing):
                        if item.reason == "not recorded" and item.first <= max(position, paused_until):
                            paused_until = item.last + 1
                        continue
                    for rows in _storable(target, item):
                        ticket = await target.aappend(
                            rows.batch, expected=position, first=rows.first, paused_until=paused_until
                        )
                        pending.append(ticket)
                        position = rows.last + 1
                while pending:
                    self._handed[source.name] = (await pending.pop(0)).last + 1
                if more := len(step) == STEP_ITEMS:
                    step = await self._read(items)
        except BusyError:
            # Another server has gone on with the recording. The next attempt begins after its rows.
            log.info("another server records the device now", device=source.name)
            raise
        finally:
            if more:  # else it has ended: most logs have few rows, and a step in a thread costs more than reading them
                with contextlib.suppress(ValueError):  # a thread still reads it, and then it closes by itself
                    await off_loop(items.close)

    async def _read(self, items: Items) -> Step:
        """Return the next items of a log.

        Many logs have a row in each second. Those that wait are read in one call in a thread, because changing to a
        thread and back takes longer than reading a row.
        """
        read: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        self._reads.append((items, read))
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_all())
        return await read

    async def _read_all(self) -> None:
        while self._reads:
            reads, self._reads = self._reads, []
            steps = await off_loop(_next_steps, [items for items, _ in reads])
            for (_, read), step in zip(reads, steps, strict=True):
                if read.done():  # cancelled, because the hand-over ends
                    continue
                if isinstance(step, Exception):
                    read.set_exception(step)
                else:
                    read.set_result(step)

    def _note_rows_left(self, source: Log, position: int) -> None:
        """Log a warning if the shared recording has gone on beyond rows that only the buffer has."""
        handed = self._handed.get(source.name)
        if handed is not None and position > handed:
            left = source.extents(Range(from_seq=handed, until_seq=position - 1))
            if left:
                log.warning(
                    "another server went on with a recording; the rows from here that came too late stay in the buffer",
                    device=source.name,
                    rows=sum(each.rows for each in left),
                    from_seq=handed,
                    until_seq=left[-1].last,
                    hint="Read them in the folder of recordings",
                )
        self._handed[source.name] = max(handed or 0, position)


def _storable(target: ReplicatedLog, rows: NumberedRows) -> Iterator[NumberedRows]:
    """Yield the rows that fit into a message. Larger rows are lost."""
    try:
        target.check(rows.batch)
    except DataError as error:
        if rows.batch.num_rows == 1:
            log.warning("a recorded row is lost: it is too large for NATS", seq=rows.first, error=str(error))
            return
        half = rows.batch.num_rows // 2
        yield from _storable(target, NumberedRows(rows.first, rows.batch.slice(0, half)))
        yield from _storable(target, NumberedRows(rows.first + half, rows.batch.slice(half)))
    else:
        yield rows


def _next_steps(logs: list[Items]) -> list[Step | Exception]:
    """Return the next items of each log, or the error that reading it has raised."""
    steps: list[Step | Exception] = []
    for items in logs:
        try:
            steps.append(list(islice(items, STEP_ITEMS)))
        except Exception as error:  # the edge of a read: it is raised where this log is copied
            steps.append(error)
    return steps
