"""`AsyncFastFlightClient`: `FastFlightClient` for an event loop.

Flight's Python client blocks, so each call runs in a thread, and each stream has its own reader thread (`stream_aio`).
A call that is cancelled before it gets a thread is never sent. Flight cannot cancel a call that has no answer yet: if a
call is cancelled while the server waits for the device, the server learns of it when it begins to answer; for an
`exec`, when the code runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastflight.client import call
from fastflight.client.asking import call_in_thread, work_in_thread
from fastflight.client.call import Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.file_copy import GetFile, PutFile, Resuming
from fastflight.client.interaction import leave
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
    """A connection to the server at `location`, opened by the first call: a missing server is reported there.

    Without a `location`, the environment variable FASTFLIGHT_SERVER names the server; if it is not set, the server is
    at `DEFAULT_LOCATION`. `timeout` is the number of seconds that a call without a stream may take. `credentials` hold
    a token, TLS certificates or both; the location of a server with TLS begins with `grpc+tls://`. Calls raise the
    errors of `fastflight.errors`: `TransportError` if the server cannot be reached, otherwise the error that the server
    describes.
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
        """Return the devices of the server."""
        return [call.device_of(given) for given in await self._act("devices")]

    async def ls(
        self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False
    ) -> list[Entry]:
        """Return the entries of a folder; with `recursive`, of the folders below it as well."""
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
        """Read the rows of a file. Without `format` and `schema`, the server infers them."""
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
        """Read one file from all devices whose names match the glob `devices`; the first column is `device`.

        With `ordered`, rows come device by device, otherwise as they arrive. `summary["failed"]` lists the devices that
        could not be read.
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
        """Read the rows of any request. Returns when their schema is known."""
        stream = await call_in_thread(lambda: self._connection.stream(request), RowStream.cancel)
        return AsyncRowStream(stream, progress)

    async def read_parallel(
        self, request: Request, *, parallel: int = call.PARALLEL, ordered: bool = True, progress: Report | None = None
    ) -> AsyncRowStream:
        """Read the rows of any request, up to `parallel` of its endpoints at a time, from the servers that they name.

        With `ordered`, rows come in the order of the endpoints, otherwise as they arrive.
        """
        stream = await call_in_thread(
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
        """Write a file to a device. Returns when it is complete; until then, and on any failure, the old file stays.

        `rows` are a DataFrame, a table, record batches, or the `pathlib.Path` of a local file. A local file with the
        same ending as `path` is copied byte for byte, one with another table's ending is converted. Other threads
        iterate over `rows` and call `progress`. If the task is cancelled, the write stops at the next batch.
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
        return await work_in_thread(self._connection.upload(request, rows, progress))

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
        """Copy a local file to a device, byte for byte.

        With `resume`, an interrupted copy leaves what it has stored on the device, and the next copy continues there:
        it first calls `resuming` with the number of bytes already stored and the size of the file. With
        `skip_unchanged`, nothing is sent if the device's file has the same size and digest.
        """
        request = call.file_request(
            device, path, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt, resume=resume
        )
        work = PutFile(
            self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress, resuming=resuming
        )
        return await work_in_thread(work)

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
        """Copy a file of a device to a local file, byte for byte.

        With `resume`, an interrupted copy leaves `FILE.part`, and the next copy continues there if these bytes are
        still the beginning of the device's file; it first calls `resuming` with their number and the size of the file.
        The old local file stays until the new one is complete. With `skip_unchanged`, nothing is read if the local
        file has the same size and digest.
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
        return await work_in_thread(work)

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
        """Copy the files of a local folder and its subfolders to a folder of a device. Links are not copied.

        The files are verified on the device before they replace the old ones. Other files in its folder stay. With
        `skip_unchanged`, files whose size and digest are the same on the device are not sent.
        """
        request = call.tree_request(device, folder, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt)
        return await work_in_thread(
            PutTree(self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress)
        )

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
        """Copy the files of a device's folder and its subfolders to a local folder.

        Each file replaces the old one when it is complete. Raises `DataError`, before anything is written, if a name is
        not safe to use on this computer. With `skip_unchanged`, files whose local copies have the same size and digest
        are not read.
        """
        request = call.tree_request(device, folder, mode=mode, transfer=transfer, deflate=deflate, interrupt=interrupt)
        return await work_in_thread(
            GetTree(self._connection, request, local, skip_unchanged=skip_unchanged, progress=progress)
        )

    async def exec(
        self, device: str, code: str, *, timeout: float | None = None, mode: Mode = "async", interrupt: bool = False
    ) -> AsyncRowStream:
        """Run a piece of code on a device and read its output while it runs.

        If the code raises, the stream raises `DeviceException` after the last row. `timeout` is the number of seconds
        without output after which the code is interrupted.
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
        """Read the live traffic of a device: from now on, from number `since_seq`, or from `since_seconds` ago.

        The stream ends at a limit, or when the device disconnects and `reconnect` is false; `summary["ended"]` gives
        the reason. `ticks` names a column with the board's tick counter; the rows then also have a column `board_time`,
        the time at which the board read the counter, by the server's clock. With `requests`, the traffic of requests is
        included, and a column `request` marks it.
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
        """Read the recording of a device: all of it, or a range of the live session's sequence numbers or of times.

        `to_seq` is included, `to_time` is not. The stream's `gaps` list what is missing, with the reason.
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
        """Return the server's recordings; their `state` says which of them are still being written."""
        return [call.recorded_of(given) for given in await self._act("recordings")]

    async def start_recording(self, device: str) -> Recorded:
        """Record a device from now on, until the server ends. Has no effect if the device is already being recorded."""
        return call.recorded_of(await self._act_once("recording.start", device=device))

    async def stop_recording(self, device: str) -> Recorded:
        """Stop recording a device. Returns when everything read so far is stored."""
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
        """Take the device's line, to send bytes and read the output. Raises `BusyError` while it is in use.

        The result is a context manager; leaving it releases the line.
        """
        request = call.build(DeviceSession, device=device, format=format, schema=schema, flush_ms=flush_ms, mode=mode)
        interaction = await call_in_thread(lambda: self._connection.interaction(request), leave)
        return AsyncInteraction(interaction, AsyncRowStream(interaction.rows, None))

    async def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        """Return the entry of a file or folder. Raises `FileMissing` if there is none."""
        return call.entry_of(await self._act_once("file.stat", device=device, path=path, interrupt=interrupt))

    async def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        """Have the device digest a file, or its first `limit` bytes. Raises `DeviceError` if the board cannot."""
        body = {"device": device, "path": path, "limit": limit, "interrupt": interrupt}
        return call.digest_of(await self._act_once("file.hash", **body))

    async def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Create a folder."""
        await self._act("file.mkdir", device=device, path=path, interrupt=interrupt)

    async def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Remove a file or an empty folder."""
        await self._act("file.remove", device=device, path=path, interrupt=interrupt)

    async def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        """Move a file or folder to the path `to` on the same device. A file at that path is replaced."""
        await self._act("file.rename", device=device, path=path, to=to, interrupt=interrupt)

    async def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        """Return what the board reports about itself: firmware, capabilities, free memory and storage."""
        return await self._act_once("device.info", device=device, interrupt=interrupt)

    async def reset(self, device: str, *, hard: bool = False, interrupt: bool = False) -> None:
        """Restart the interpreter, which then runs `main.py`; with `hard`, restart the board."""
        await self._act("device.reset", device=device, kind=call.reset_kind(hard), interrupt=interrupt)

    async def health(self) -> dict[str, Any]:
        """Return the server's own report of its health."""
        return await self._act_once("health")

    async def stats(self) -> dict[str, Any]:
        """Return the server's counters."""
        return await self._act_once("stats")

    async def _act(self, name: str, **body: Any) -> list[Any]:
        return await call_in_thread(lambda: self._connection.act(name, **body))

    async def _act_once(self, name: str, **body: Any) -> dict[str, Any]:
        return await call_in_thread(lambda: self._connection.act_once(name, **body))

    async def aclose(self) -> None:
        """Close the connection. Make no calls after this; streams that are open continue until they are left."""
        # Not in a thread: all threads of the loop may still be waiting for answers to calls that were cancelled.
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
