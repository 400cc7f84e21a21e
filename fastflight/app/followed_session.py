"""A live session with `reconnect`, which goes on at the next owner of its device, or when the way to its owner breaks.

The rows pass as they come. When the stream from the owner breaks off, the session is opened again: after the last row
that has passed, or at the first traffic of the new owner. A note `gap` stands in between. No row passes twice, so
the owner is always asked for the column `seq`; it is taken out again if the client has not asked for it.

The trailer is that of the last part of the session. Its counts include those of the parts that ended with a trailer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fastflight.app.routes import LOOK_SECONDS, MOVING_SECONDS, Routes
from fastflight.errors import BusyError, RequestError, Stopped, TransportError
from fastflight.gap import Gap, Why
from fastflight.service.requests import LAYOUT_CHANGED, MAX_SECONDS, SERVER_DRAINING, DeviceSession
from fastflight.service.source import Batches, Noted, Reading, Summary
from fastflight.tables.bare import empty
from fastflight.tables.summary import MAX_REJECTED_EXAMPLES

SEQ = "seq"
# How long a session waits for the next owner.
RESUME_SECONDS = 2 * MOVING_SECONDS
# Keys of a trailer that this server counts itself.
OWN_COUNTS = ("rows", "bytes", "duration_seconds")
# Keys of a trailer that are counts of one part of the session.
PART_COUNTS = ("rx_bytes", "tx_bytes", "gaps", "lost", "rejected")

Read = Callable[[DeviceSession], Awaitable[Reading]]


class FollowedSession:
    """One session. `read` opens a part of it at the present owner, to which `routes` knows the way."""

    def __init__(self, request: DeviceSession, read: Read, routes: Routes) -> None:
        columns = request.columns
        self._hides_seq = columns is not None and SEQ not in columns
        update = {"columns": (SEQ, *(columns or ()))} if self._hides_seq else {}
        self._request = request.model_copy(update=update)
        self._read = read
        self._routes = routes
        self._began = time.monotonic()
        self._draining = threading.Event()
        self._rows = 0
        # The number after that of the last row that has passed; None before the first row.
        self._following: int | None = None
        self._parts: list[Summary] = []
        self._moves = 0

    async def open(self) -> Reading:
        """Open the session. Raises the error that comes before its first row."""
        self._reading = await self._read(self._request)
        self._schema = self._shown_columns()
        batches = self._batches()
        await anext(batches)  # a generator that was not begun would not close the stream
        return Reading(self._schema, batches, self._summary, self._drain)

    async def _batches(self) -> AsyncGenerator[Batches, None]:
        try:
            yield []
            while True:
                try:
                    async for batches in self._reading:
                        yield [self._passed(item) for item in batches]
                    self._parts.append(self._reading.summary())
                    if self._parts[-1].get("ended") != SERVER_DRAINING or self._draining.is_set():
                        return
                    reason = "the device moved to another server"
                except (TransportError, BusyError, Stopped) as error:
                    reason = error.what
                await self._reading.aclose()
                if self._draining.is_set():
                    self._parts.append({"ended": SERVER_DRAINING})
                    return
                self._moves += 1
                lost = datetime.now(UTC)
                first = await self._resume(reason) or 0
                if not self._shown_columns().equals(self._schema):  # typed rows
                    why = "the next server has recognised other columns"
                    self._parts.append({"ended": LAYOUT_CHANGED, "why": why, "next_seq": first})
                    return
                gap = Gap(first, first - 1, Why.SERVER_DOWN, reason, lost, datetime.now(UTC))
                yield [Noted(empty(self._schema), {"gap": gap.details()})]
        finally:
            await self._reading.aclose()

    def _shown_columns(self) -> pa.Schema:
        """Return the columns of the present part that the client sees."""
        found = self._reading.schema
        fields = [field for field in found if field.name != SEQ or not self._hides_seq]
        return pa.schema(fields, found.metadata)

    def _drain(self) -> None:
        self._draining.set()
        if (drain := self._reading.drain) is not None:
            drain()

    def _summary(self) -> Summary:
        summary = {key: value for key, value in self._parts[-1].items() if key not in OWN_COUNTS}
        for key in PART_COUNTS:
            if found := [part[key] for part in self._parts if key in part]:
                summary[key] = sum(found)
        examples = [row for part in self._parts for row in part.get("rejected_rows", ())]
        gaps = summary.get("gaps", 0) + self._moves
        return {**summary, "gaps": gaps, "rejected_rows": examples[:MAX_REJECTED_EXAMPLES]}

    def _passed(self, item: pa.RecordBatch | Noted) -> pa.RecordBatch | Noted:
        batch = item.batch if isinstance(item, Noted) else item
        self._rows += batch.num_rows
        if batch.num_rows:
            self._following = batch[SEQ][-1].as_py() + 1
        if not self._hides_seq:
            return item
        batch = batch.select(self._schema.names)
        return Noted(batch, item.note) if isinstance(item, Noted) else batch

    async def _resume(self, reason: str) -> int | None:
        """Open the next part. Return the number at which it begins, if that is known.

        `Stopped` if that does not succeed in time.
        """
        deadline = time.monotonic() + RESUME_SECONDS
        while True:
            try:
                await self._routes.aroute(self._request.device)
                request = self._next_part()
                self._reading = await self._read(request)
                if self._draining.is_set():
                    self._drain()
                return request.since_seq
            except (TransportError, BusyError, Stopped, RequestError) as error:
                # The number is not the client's: an owner that is still moving has not reached it yet.
                if isinstance(error, RequestError) and error.where != "since_seq":
                    raise
                if time.monotonic() > deadline or self._draining.is_set():
                    raise Stopped(
                        f"the session could not go on after an outage ({reason}): {error.what}",
                        where=self._request.device,
                        hint="Open it again, with since_seq after its last row",
                    ) from error
            await asyncio.sleep(LOOK_SECONDS)

    def _next_part(self) -> DeviceSession:
        """Return the request for what has not passed yet."""
        request, elapsed = self._request, time.monotonic() - self._began
        update: dict[str, Any] = {"since_seconds": None}
        begin = request.since_seq if self._following is None else self._following
        if begin is not None:
            # A new owner's numbers are higher than all of the last one. It may have read the line for a while.
            update["since_seq"] = max(begin, self._routes.owners.first_seq(request.device))
        else:
            update["since_seconds"] = min((request.since_seconds or 0.0) + elapsed, MAX_SECONDS)
        if request.limit_rows is not None:
            update["limit_rows"] = max(0, request.limit_rows - self._rows)
        if request.limit_seconds is not None:
            update["limit_seconds"] = max(0.0, request.limit_seconds - elapsed)
        return request.model_copy(update=update)
