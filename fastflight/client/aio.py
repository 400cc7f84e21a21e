"""`AsyncFastFlightClient`: `FastFlightClient` for an event loop.

Flight's Python client blocks, so each call runs in a thread, and each stream has its own reader thread (`stream_aio`).
A call that is cancelled before it gets a thread is never sent. Flight cannot cancel a call that has no answer yet: if a
call is cancelled while the server waits for the device, the server learns of it when it begins to answer; for an
`exec`, when the code runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from fastflight.client import answers, call
from fastflight.client.answers import Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
from fastflight.client.argument_types import checks_arguments
from fastflight.client.asking import call_in_thread, work_in_thread
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.endpoint import Endpoint
from fastflight.client.file_copy import GetFile, PutFile
from fastflight.client.interaction import leave
from fastflight.client.interaction_aio import AsyncInteraction
from fastflight.client.options import (
    FileCopyOptions,
    FleetOptions,
    ReadOptions,
    RecordingOptions,
    SessionOptions,
    TreeCopyOptions,
    WriteOptions,
    request_keys,
)
from fastflight.client.parallel import ParallelRowStream
from fastflight.client.progress import Report
from fastflight.client.server_files import ServerFiles
from fastflight.client.stream import RowStream
from fastflight.client.stream_aio import AsyncRowStream
from fastflight.client.tree_copy import GetTree, PutTree
from fastflight.service.choices import Mode, SessionFormat
from fastflight.service.requests import (
    DeviceExec,
    DeviceFile,
    DeviceListing,
    DeviceSession,
    FleetFile,
    Recording,
    Request,
    Sql,
)

if TYPE_CHECKING:
    import polars as pl

    from fastflight.client.live import LivePlot
    from fastflight.client.rows import Writable


@checks_arguments
class AsyncFastFlightClient:
    """`FastFlightClient` for an event loop. Close it with `aclose`, or use it in an `async with` block."""

    def __init__(
        self,
        location: str | None = None,
        *,
        timeout: float = answers.DEFAULT_TIMEOUT,
        credentials: Credentials = NONE,
    ) -> None:
        self.location: str = answers.location_of(location)
        self._connection = ServerConnection(self.location, timeout, credentials)

    async def devices(self) -> list[Device]:
        """Return the devices of the server."""
        return [answers.device_of(given) for given in await self._act("devices")]

    async def ls(
        self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False
    ) -> list[Entry]:
        """Return the entries of a folder; with `recursive`, of the folders below it as well."""
        request = call.build(DeviceListing, device=device, path=path, recursive=recursive, interrupt=interrupt)
        async with await self.read_request(request) as stream:
            return answers.entries_of([batch async for batch in stream])

    async def read(self, device: str, path: str, **options: Unpack[ReadOptions]) -> AsyncRowStream:
        """Read the rows of a file. See `FastFlightClient.read`."""
        request = call.build(DeviceFile, device=device, path=path, **request_keys("read", options))
        return await self.read_request(request, progress=options.get("progress"))

    async def read_fleet(self, devices: str, path: str, **options: Unpack[FleetOptions]) -> AsyncRowStream:
        """Read one file from all devices whose names match a glob. See `FastFlightClient.read_fleet`."""
        request = call.build(FleetFile, devices=devices, path=path, **request_keys("read_fleet", options))
        return await self.read_request(request, progress=options.get("progress"))

    async def read_request(self, request: Request, *, progress: Report | None = None) -> AsyncRowStream:
        """Read the rows of any request. Returns when their schema is known."""
        stream = await call_in_thread(lambda: self._connection.stream(request, progress), RowStream.cancel)
        return AsyncRowStream(stream, progress)

    async def read_parallel(
        self,
        request: Request,
        *,
        parallel: int = answers.PARALLEL,
        ordered: bool = True,
        progress: Report | None = None,
    ) -> AsyncRowStream:
        """Read the endpoints of any request in parallel. See `FastFlightClient.read_parallel`."""
        stream = await call_in_thread(
            lambda: self._connection.parallel_stream(request, parallel, ordered), ParallelRowStream.cancel
        )
        return AsyncRowStream(stream, progress)

    async def endpoints(self, request: Request) -> list[Endpoint]:
        """Return the endpoints of any request. See `FastFlightClient.endpoints`."""
        return await call_in_thread(lambda: self._connection.endpoints(request))

    def scan(self, request: Request) -> pl.LazyFrame:
        """Return a lazy frame of Polars. See `FastFlightClient.scan`. The loop waits for its columns and its rows."""
        from fastflight.client.scan import scan

        return scan(self._connection, request)

    async def write(self, device: str, path: str, rows: Writable | Path, **options: Unpack[WriteOptions]) -> Written:
        """Write a file to a device. See `FastFlightClient.write`.

        Other threads iterate over `rows` and call `progress`. If the task is cancelled, the write stops at the next
        batch.
        """
        request = call.build(DeviceFile, device=device, path=path, **request_keys("write", options))
        return await work_in_thread(self._connection.upload(request, rows, options.get("progress")))

    async def write_request(self, request: Request, rows: Writable, *, progress: Report | None = None) -> Written:
        """Write rows to a request that takes them. See `FastFlightClient.write_request`."""
        return await work_in_thread(self._connection.upload(request, rows, progress))

    async def put_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        """Copy a local file to a device, byte for byte. See `FastFlightClient.put_file`."""
        return await work_in_thread(PutFile(self._files(device, "put_file", options), path, local, options))

    async def get_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        """Copy a file of a device to a local file, byte for byte. See `FastFlightClient.get_file`."""
        return await work_in_thread(GetFile(self._files(device, "get_file", options), path, local, options))

    async def put_tree(
        self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]
    ) -> CopiedTree:
        """Copy a local folder to a folder of a device. See `FastFlightClient.put_tree`."""
        return await work_in_thread(PutTree(self._files(device, "put_tree", options), folder, local, options))

    async def get_tree(
        self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]
    ) -> CopiedTree:
        """Copy a folder of a device to a local folder. See `FastFlightClient.get_tree`."""
        return await work_in_thread(GetTree(self._files(device, "get_tree", options), folder, local, options))

    async def exec(
        self, device: str, code: str, *, timeout: float | None = None, mode: Mode = "async", interrupt: bool = False
    ) -> AsyncRowStream:
        """Run a piece of code on a device and read its output while it runs. See `FastFlightClient.exec`."""
        request = call.build(DeviceExec, device=device, code=code, timeout=timeout, mode=mode, interrupt=interrupt)
        return await self.read_request(request)

    async def session(self, device: str, **options: Unpack[SessionOptions]) -> AsyncRowStream:
        """Read the live traffic of a device. See `FastFlightClient.session`."""
        request = call.build(DeviceSession, device=device, **request_keys("session", options))
        return await self.read_request(request)

    def live(
        self,
        device: str,
        columns: Sequence[str] | None = None,
        *,
        seconds: float | None = answers.LIVE_SECONDS,
        window: float = answers.LIVE_SECONDS,
    ) -> LivePlot:
        """Return a moving plot, for a notebook. See `FastFlightClient.live`. While it is displayed, the loop waits."""
        from fastflight.client.live import live_plot

        return live_plot(self._connection, device, columns, seconds, window)

    async def recording(self, name: str, **options: Unpack[RecordingOptions]) -> AsyncRowStream:
        """Read the recording of a device: all of it or a range. See `FastFlightClient.recording`."""
        return await self.read_request(call.build(Recording, name=name, **request_keys("recording", options)))

    async def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        progress: Report | None = None,
    ) -> AsyncRowStream:
        """Read the result of a query. See `FastFlightClient.sql`."""
        request = call.build(Sql, query=query, parameters=call.sql_parameters(parameters))
        return await self.read_request(request, progress=progress)

    async def recordings(self) -> list[Recorded]:
        """Return the server's recordings; their `state` says which of them are still being written."""
        return [answers.recorded_of(given) for given in await self._act("recordings")]

    async def add_device(self, name: str, url: str, *, record: bool = False) -> None:
        """Add a device to the server, until it ends. `record`: also record it. Needs the scope `admin:*`.

        `url` is a serial port of the server's computer, `socket://`, `rfc2217://` or `sim:`.
        """
        await self._act("device.add", name=name, url=url, record=record)

    async def remove_device(self, name: str) -> bool:
        """Remove a device from the server, until it starts again. Its streams end with an error.

        Return whether its line is closed; if not, a call still uses it, and it is closed after that.
        """
        return bool((await self._act_once("device.remove", name=name)).get("closed"))

    async def start_recording(self, device: str) -> Recorded:
        """Record a device from now on, until the server ends. Has no effect if the device is already being recorded."""
        return answers.recorded_of(await self._act_once("recording.start", device=device))

    async def stop_recording(self, device: str) -> Recorded:
        """Stop recording a device. Returns when everything read so far is stored."""
        return answers.recorded_of(await self._act_once("recording.stop", device=device))

    async def interact(
        self,
        device: str,
        *,
        format: SessionFormat = "bytes",
        schema: Mapping[str, str] | None = None,
        flush_ms: int = 0,
        mode: Mode = "async",
    ) -> AsyncInteraction:
        """Take the device's line, to send bytes and read the output. See `FastFlightClient.interact`."""
        request = call.build(DeviceSession, device=device, format=format, schema=schema, flush_ms=flush_ms, mode=mode)
        interaction = await call_in_thread(lambda: self._connection.interaction(request), leave)
        return AsyncInteraction(interaction, AsyncRowStream(interaction.rows, None))

    async def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        """Return the entry of a file or folder. Raises `FileMissing` if there is none."""
        return answers.entry_of(await self._act_once("file.stat", device=device, path=path, interrupt=interrupt))

    async def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        """Have the device digest a file, or its first `limit` bytes. Raises `DeviceError` if the board cannot."""
        body = {"device": device, "path": path, "limit": limit, "interrupt": interrupt}
        return answers.digest_of(await self._act_once("file.hash", **body))

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

    async def reset(self, device: str, *, hard: bool = False, main: bool = True, interrupt: bool = False) -> None:
        """Restart the interpreter, which then runs `main.py` unless `main` is false; with `hard`, restart the board."""
        await self._act("device.reset", device=device, **answers.reset_keys(hard, main), interrupt=interrupt)

    async def health(self) -> dict[str, Any]:
        """Return the server's own report of its health."""
        return await self._act_once("health")

    async def stats(self) -> dict[str, Any]:
        """Return the server's counters."""
        return await self._act_once("stats")

    async def cluster(self) -> dict[str, Any]:
        """Return the servers of the server's cluster, and the owners of devices. `RequestError` without a cluster."""
        return await self._act_once("cluster.status")

    async def cluster_storage(self) -> dict[str, Any]:
        """Return the recorded rows of each device that wait to be stored in NATS, and the copies of what NATS stores.

        `oldest_waiting` has the time of the oldest of these rows, and its age in seconds. `replicas` has for the stream
        and each bucket the number of copies, how many there should be (`wanted`) and are current, and the nodes that
        are behind. `unanswered` has the servers that gave no answer, so that their waiting rows are not known.
        `RequestError` without a cluster.
        """
        return await self._act_once("cluster.storage")

    def _files(self, device: str, verb: str, options: Mapping[str, Any]) -> ServerFiles:
        return ServerFiles(self._connection, device, request_keys(verb, options))

    async def _act(self, name: str, /, **body: Any) -> list[Any]:
        return await call_in_thread(lambda: self._connection.act(name, **body))

    async def _act_once(self, name: str, /, **body: Any) -> dict[str, Any]:
        return await call_in_thread(lambda: self._connection.act_once(name, **body))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the devices, and what to type next."""
        from fastflight.client.notebook import NEXT_ASYNC, client_html

        return client_html(self._connection, NEXT_ASYNC)

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
