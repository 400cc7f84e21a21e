"""`AsyncFastFlightClient`: the same for an event loop.

Flight's Python client blocks: calls run in a thread each, and a stream has a reader thread of its own (`stream_aio`).
What is cancelled before it has a thread is not asked. What has no answer yet cannot be taken back: of a call that is
cancelled while the server still waits for the device, the server is told when it has begun to answer; of an `exec`,
when the code runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastflight.client import call
from fastflight.client.asking import asked, worked
from fastflight.client.call import Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.file_copy import GetFile, PutFile, Resuming
from fastflight.client.interaction import left
from fastflight.client.interaction_aio import AsyncInteraction
from fastflight.client.parallel import ParallelRowStream
from fastflight.client.progress import Report
from fastflight.client.stream import RowStream
from fastflight.client.stream_aio import AsyncRowStream
from fastflight.client.tree_copy import GetTree, PutTree, TreeReport
from fastflight.service.requests import (
    DeviceExec,
    DeviceFile,
    DeviceListing,
    DeviceSession,
    FleetFile,
    Format,
    Method,
    Mode,
    OnError,
    Recording,
    Request,
    SessionFormat,
)

if TYPE_CHECKING:
    from fastflight.client.rows import Writable


class AsyncFastFlightClient:
    """A connection to the server at `location`. Made lazily: an absent server shows at the first call.

    Without a `location` it is the server that the environment variable FASTFLIGHT_SERVER names, or else the one at
    `DEFAULT_LOCATION`.
    `timeout` is the seconds that a call without a stream may take. `credentials` are what a server with tokens or TLS
    wants, whose location begins with `grpc+tls://` then. Errors are those of `fastflight.errors`:
    `TransportError` where the server is not reached, the others as the server describes them.
    """

    def __init__(
        self,
        location: str | None = None,
        *,
        timeout: float = call.DEFAULT_TIMEOUT,
        credentials: Credentials = NONE,
    ) -> None:
        self.location = call.location_of(location)
        self._connection = ServerConnection(self.location, timeout, credentials)

    async def devices(self) -> list[Device]:
        """The devices of the server."""
        return [call.device_of(given) for given in await self._act("devices")]

    async def ls(
        self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False
    ) -> list[Entry]:
        """The entries of a folder."""
        request = call.build(DeviceListing, device=device, path=path, recursive=recursive, interrupt=interrupt)
        async with await self.read_request(request) as stream:
            return call.entries_of([batch async for batch in stream])

    async def read(
        self,
        device: str,
        path: str,
        *,
        format: Format | None = None,
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        record: str | None = None,
        batch_rows: int | None = None,
        mode: Mode = "async",
        on_error: OnError = "skip",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: Report | None = None,
    ) -> AsyncRowStream:
        """The rows of a file. `format` and `schema` are found out by the server where they are not given."""
        request = call.build(
            DeviceFile,
            device=device,
            path=path,
            format=format,
            schema=schema,
            columns=columns,
            record=record,
            batch_rows=batch_rows,
            mode=mode,
            on_error=on_error,
            transfer=transfer,
            deflate=deflate,
            interrupt=interrupt,
        )
        return await self.read_request(request, progress=progress)

    async def read_fleet(
        self,
        devices: str,
        path: str,
        *,
        ordered: bool = False,
        format: Format | None = None,
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        record: str | None = None,
        batch_rows: int | None = None,
        mode: Mode = "async",
        on_error: OnError = "skip",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: Report | None = None,
    ) -> AsyncRowStream:
        """The rows of a file of all devices whose names fit the glob `devices`, with a leading column `device`.

        `ordered`: device by device, else as they come. Devices that could not be read are in `summary["failed"]`.
        """
        request = call.build(
            FleetFile,
            devices=devices,
            path=path,
            ordered=ordered,
            format=format,
            schema=schema,
            columns=columns,
            record=record,
            batch_rows=batch_rows,
            mode=mode,
            on_error=on_error,
            transfer=transfer,
            deflate=deflate,
            interrupt=interrupt,
        )
        return await self.read_request(request, progress=progress)

    async def read_request(self, request: Request, *, progress: Report | None = None) -> AsyncRowStream:
        """The rows of any request. Returns when their schema is known."""
        stream = await asked(lambda: self._connection.stream(request), RowStream.cancel)
        return AsyncRowStream(stream, progress)

    async def read_parallel(
        self, request: Request, *, parallel: int = call.PARALLEL, ordered: bool = True, progress: Report | None = None
    ) -> AsyncRowStream:
        """The rows of any request, `parallel` of its endpoints at a time, at whatever servers these name.

        `ordered`: in the order of the endpoints; otherwise as they come.
        """
        stream = await asked(
            lambda: self._connection.parallel_stream(request, parallel, ordered), ParallelRowStream.cancel
        )
        return AsyncRowStream(stream, progress)

    async def write(
        self,
        device: str,
        path: str,
        rows: Writable | Path,
        *,
        format: Format | None = None,
        columns: Sequence[str] | None = None,
        record: str | None = None,
        mode: Mode = "async",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: Report | None = None,
    ) -> Written:
        """Put a file on a device. Returns when it is whole; until then, and on any failure, the old file stays.

        A local file (`pathlib.Path`) with the ending of `path` is copied as it is; others are converted. The rows are
        taken, and `progress` is called, in threads. Cancelled, the write is given up at the next batch.
        """
        request = call.build(
            DeviceFile,
            device=device,
            path=path,
            format=format,
            columns=columns,
            record=record,
            mode=mode,
            transfer=transfer,
            deflate=deflate,
            interrupt=interrupt,
        )
        return await worked(self._connection.upload(request, rows, progress))

    async def put_file(
        self,
        device: str,
        path: str,
        local: str | Path,
        *,
        resume: bool = True,
        skip_unchanged: bool = False,
        mode: Mode = "async",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: Report | None = None,
        resuming: Resuming | None = None,
    ) -> Copied:
        """Copy a local file to a device as it is. With `resume`, a copy that breaks off leaves its part on the device.

        The next one goes on from there, after `resuming(bytes there, bytes in all)`. With `skip_unchanged` nothing is
        moved where the device finds its file to be the same.
        """
        request = call.file_request(
            device, path, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt, resume=resume
        )
        work = PutFile(
            self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress, resuming=resuming
        )
        return await worked(work)

    async def get_file(
        self,
        device: str,
        path: str,
        local: str | Path,
        *,
        resume: bool = True,
        skip_unchanged: bool = False,
        mode: Mode = "async",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: Report | None = None,
        resuming: Resuming | None = None,
    ) -> Copied:
        """Copy a file of a device to a local one as it is. With `resume`, a copy that breaks off leaves `FILE.part`.

        The next one goes on from there if its bytes are still those of the device's file. The old file stays until the
        new one is whole.
        """
        request = call.file_request(device, path, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt)
        work = GetFile(
            self._connection,
            request,
            local,
            resume=resume,
            skip_unchanged=skip_unchanged,
            progress=progress,
            resuming=resuming,
        )
        return await worked(work)

    async def put_tree(
        self,
        device: str,
        folder: str,
        local: str | Path,
        *,
        skip_unchanged: bool = False,
        mode: Mode = "async",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: TreeReport | None = None,
    ) -> CopiedTree:
        """Copy the files in a local folder, and in those below it, to a folder of a device; links are left out.

        All of them are verified there before the first old one is replaced. Other files in that folder stay.
        """
        request = call.tree_request(device, folder, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt)
        return await worked(PutTree(self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress))

    async def get_tree(
        self,
        device: str,
        folder: str,
        local: str | Path,
        *,
        skip_unchanged: bool = False,
        mode: Mode = "async",
        transfer: Method = "auto",
        deflate: bool | None = None,
        interrupt: bool = False,
        progress: TreeReport | None = None,
    ) -> CopiedTree:
        """Copy the files in a folder of a device, and in those below it, to a local folder.

        Each takes the place of the old one when it is whole. A name that must not be used here is a `DataError`, before
        anything is written.
        """
        request = call.tree_request(device, folder, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt)
        return await worked(GetTree(self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress))

    async def exec(
        self, device: str, code: str, *, timeout: float | None = None, mode: Mode = "async", interrupt: bool = False
    ) -> AsyncRowStream:
        """The output of a piece of code, as it runs. `DeviceException` after the last row, should it raise.

        `timeout` is the seconds of silence after which the code is interrupted.
        """
        request = call.build(DeviceExec, device=device, code=code, timeout=timeout, mode=mode, interrupt=interrupt)
        return await self.read_request(request)

    async def session(
        self,
        device: str,
        *,
        since_seq: int | None = None,
        since_seconds: float | None = None,
        format: SessionFormat = "bytes",
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        ticks: str | Mapping[str, Any] | None = None,
        batch_rows: int | None = None,
        flush_ms: int | None = None,
        limit_rows: int | None = None,
        limit_seconds: float | None = None,
        reconnect: bool = False,
        requests: bool = False,
        mode: Mode = "async",
    ) -> AsyncRowStream:
        """The live traffic of a device, from now on, from number `since_seq`, or from `since_seconds` back.

        Ends by itself at a limit, or when the device is gone and `reconnect` is not given; `summary["ended"]` says why.
        With `ticks`, a column of the board's ticks, there is also `board_time`: when they were read, by the server's
        clock. With `requests`, rows of requests and their answers come, too, and a column `request` tells them apart.
        """
        request = call.build(
            DeviceSession,
            device=device,
            since_seq=since_seq,
            since_seconds=since_seconds,
            format=format,
            schema=schema,
            columns=columns,
            ticks=ticks,
            batch_rows=batch_rows,
            flush_ms=flush_ms,
            limit_rows=limit_rows,
            limit_seconds=limit_seconds,
            reconnect=reconnect,
            requests=requests,
            mode=mode,
        )
        return await self.read_request(request)

    async def recording(
        self,
        name: str,
        *,
        from_seq: int | None = None,
        to_seq: int | None = None,
        from_time: datetime | None = None,
        to_time: datetime | None = None,
        since_seconds: float | None = None,
        format: SessionFormat = "bytes",
        schema: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        ticks: str | Mapping[str, Any] | None = None,
        batch_rows: int | None = None,
        limit_rows: int | None = None,
        mode: Mode = "async",
    ) -> AsyncRowStream:
        """What was recorded of a device: all of it, or a range, by the numbers of the live session or by times.

        `to_seq` is included, `to_time` is not. What is missing is in `gaps`, with the reason.
        """
        request = call.build(
            Recording,
            name=name,
            from_seq=from_seq,
            to_seq=to_seq,
            from_time=from_time,
            to_time=to_time,
            since_seconds=since_seconds,
            format=format,
            schema=schema,
            columns=columns,
            ticks=ticks,
            batch_rows=batch_rows,
            limit_rows=limit_rows,
            mode=mode,
        )
        return await self.read_request(request)

    async def recordings(self) -> list[Recorded]:
        """What the server has recorded, and of whom it still does."""
        return [call.recorded_of(given) for given in await self._act("recordings")]

    async def start_recording(self, device: str) -> Recorded:
        """Record a device from now on, until the server ends; nothing changes where it is recorded already."""
        return call.recorded_of(await self._act_once("recording.start", device=device))

    async def stop_recording(self, device: str) -> Recorded:
        """Record a device no more. Returns when what was read until now is kept."""
        return call.recorded_of(await self._act_once("recording.stop", device=device))

    async def interact(
        self,
        device: str,
        *,
        format: SessionFormat = "bytes",
        schema: Mapping[str, str] | None = None,
        flush_ms: int = 0,
        mode: Mode = "async",
    ) -> AsyncInteraction:
        """Have the device's line, to send to it and to see what it says. `BusyError` while somebody else has it.

        A context manager: leaving it gives the line back.
        """
        request = call.build(DeviceSession, device=device, format=format, schema=schema, flush_ms=flush_ms, mode=mode)
        interaction = await asked(lambda: self._connection.interaction(request), left)
        return AsyncInteraction(interaction, AsyncRowStream(interaction.rows, None))

    async def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        """A file or folder. `FileMissing` where there is none."""
        return call.entry_of(await self._act_once("file.stat", device=device, path=path, interrupt=interrupt))

    async def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        """The digest of a file or of its first `limit` bytes, taken on the device. `DeviceError` if it takes none."""
        body = {"device": device, "path": path, "limit": limit, "interrupt": interrupt}
        return call.digest_of(await self._act_once("file.hash", **body))

    async def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Make a folder."""
        await self._act("file.mkdir", device=device, path=path, interrupt=interrupt)

    async def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Remove a file or an empty folder."""
        await self._act("file.remove", device=device, path=path, interrupt=interrupt)

    async def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        """Give a file or folder another path on the same device; a file that has it is replaced."""
        await self._act("file.rename", device=device, path=path, to=to, interrupt=interrupt)

    async def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        """What the board says of itself: its firmware, what it can do, free memory and space."""
        return await self._act_once("device.info", device=device, interrupt=interrupt)

    async def reset(self, device: str, *, hard: bool = False, interrupt: bool = False) -> None:
        """Restart the interpreter, and with it `main.py`; with `hard`, the board."""
        await self._act("device.reset", device=device, kind=call.reset_kind(hard), interrupt=interrupt)

    async def health(self) -> dict[str, Any]:
        """Whether the server serves."""
        return await self._act_once("health")

    async def stats(self) -> dict[str, Any]:
        """The server's counters."""
        return await self._act_once("stats")

    async def _act(self, name: str, **body: Any) -> list[Any]:
        return await asked(lambda: self._connection.act(name, **body))

    async def _act_once(self, name: str, **body: Any) -> dict[str, Any]:
        return await asked(lambda: self._connection.act_once(name, **body))

    async def aclose(self) -> None:
        """Give the connection back. Nothing is asked after this; streams that are still open go on until left."""
        # Not in a thread, of which the loop may have none before the server has answered what was given up.
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
