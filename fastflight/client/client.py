"""`FastFlightClient`: read, write and control the devices of a fastflight server. Can be used from any thread.

Each method makes plain Flight calls, which any other Flight client can make too: tickets, commands and actions are
JSON. The client adds typed errors, streams that raise if rows are missing, and copies of local files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from fastflight.client import answers, call
from fastflight.client.answers import Copied, CopiedTree, Device, Digest, Entry, Recorded, Written
from fastflight.client.argument_types import checks_arguments
from fastflight.client.cancel_scope import CancelScope
from fastflight.client.connection import ServerConnection
from fastflight.client.credentials import NONE, Credentials
from fastflight.client.options import (
    FileCopyOptions,
    FleetOptions,
    ReadOptions,
    RecordingOptions,
    SessionOptions,
    TreeCopyOptions,
    WriteOptions,
    request_keys,
    split_options,
)
from fastflight.client.progress import Report
from fastflight.service.choices import Mode, SessionFormat
from fastflight.service.requests import (
    DeviceExec,
    DeviceFile,
    DeviceSession,
    FleetFile,
    Recording,
    Request,
    Sql,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from fastflight.client.endpoint import Endpoint
    from fastflight.client.interaction import Interaction
    from fastflight.client.live import LivePlot
    from fastflight.client.parallel import ParallelRowStream
    from fastflight.client.rows import Writable
    from fastflight.client.server_board import ServerBoard
    from fastflight.client.stream import RowStream


@checks_arguments
class FastFlightClient:
    """A connection to the server at `location`, opened by the first call: a missing server is reported there.

    Without a `location`, the environment variable FASTFLIGHT_SERVER names the server; if it is not set, the server is
    at `DEFAULT_LOCATION`. `timeout` is the number of seconds that a call without a stream may take. `credentials` hold
    a token, TLS certificates or both; the location of a server with TLS begins with `grpc+tls://`. Calls raise the
    errors of `fastflight.errors`: `TransportError` if the server cannot be reached, otherwise the error that the server
    describes.

    `help("fastflight.client.options")` describes the options of the verbs. With `interrupt`, which most verbs have, the
    program that the device is running is stopped first.
    """

    # The class of the connection, for a client whose calls are made in another way.
    _connection_class: ClassVar[type[ServerConnection]] = ServerConnection

    def __init__(
        self,
        location: str | None = None,
        *,
        timeout: float = answers.DEFAULT_TIMEOUT,
        credentials: Credentials = NONE,
    ) -> None:
        self.location: str = answers.location_of(location, encrypted=credentials.ca is not None)
        self._connection = self._connection_class(self.location, timeout, credentials)

    def devices(self) -> list[Device]:
        """Return the devices of the server."""
        return [answers.device_of(fields) for fields in self._connection.act("devices")]

    def ls(self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False) -> list[Entry]:
        """Return the entries of a folder; with `recursive`, of the folders below it as well."""
        return self._board(device, interrupt=interrupt).ls(path, recursive=recursive)

    def read(self, device: str, path: str, **options: Unpack[ReadOptions]) -> RowStream:
        """Read the rows of a file. Without `format` and `schema`, the server infers them.

        Options: `fastflight.client.options.ReadOptions`.
        """
        request = call.build(DeviceFile, device=device, path=path, **request_keys("read", options))
        return self.read_request(request, progress=options.get("progress"))

    def read_fleet(self, devices: str, path: str, **options: Unpack[FleetOptions]) -> RowStream:
        """Read one file from all devices whose names match the glob `devices`; the first column is `device`.

        `summary["failed"]` lists the devices that could not be read. Options: `fastflight.client.options.FleetOptions`.
        """
        request = call.build(FleetFile, devices=devices, path=path, **request_keys("read_fleet", options))
        return self.read_request(request, progress=options.get("progress"))

    def read_request(self, request: Request, *, progress: Report | None = None) -> RowStream:
        """Read the rows of any request. Returns when their schema is known."""
        from fastflight.client.notebook import reading_bar

        with reading_bar(progress) as report:
            stream = self._connection.stream(request, report)
        return stream.reporting(progress)

    def read_parallel(
        self,
        request: Request,
        *,
        parallel: int = answers.PARALLEL,
        ordered: bool = True,
        progress: Report | None = None,
    ) -> ParallelRowStream:
        """Read the rows of any request, up to `parallel` of its endpoints at a time, from the servers that they name.

        With `ordered`, rows come in the order of the endpoints, otherwise as they arrive.
        """
        return self._connection.parallel_stream(request, parallel, ordered).reporting(progress)

    def endpoints(self, request: Request) -> list[Endpoint]:
        """Return the endpoints of any request: parts that other processes can read, such as the workers of Dask or Ray.

        A fleet has an endpoint for each device. An `Endpoint` can be pickled; it then carries the client's credentials.
        """
        return self._connection.endpoints(request)

    def scan(self, request: Request) -> pl.LazyFrame:
        """Return the rows of any request as a lazy frame of Polars, which reads only what a query needs.

        The server is asked for the columns now, and for rows each time that the frame is collected: for the columns
        that the query uses, and no more than the first rows where it takes only these. The client must not be closed
        before. Needs the package `polars`.
        """
        from fastflight.client.scan import scan

        return scan(self._connection, request)

    def write(self, device: str, path: str, rows: Writable | Path, **options: Unpack[WriteOptions]) -> Written:
        """Write a file to a device. Returns when it is complete; until then, and on any failure, the old file stays.

        `rows` are a DataFrame, a table, record batches, or the `pathlib.Path` of a local file. Such a file is copied
        byte for byte, or converted if the ending of `path` names another table format than its own. Options:
        `fastflight.client.options.WriteOptions`.
        """
        request = call.build(DeviceFile, device=device, path=path, **request_keys("write", options))
        return self._upload(request, rows, options.get("progress"))

    def write_request(self, request: Request, rows: Writable, *, progress: Report | None = None) -> Written:
        """Write rows to a request that takes them, such as that of an own source. Returns when they are stored."""
        return self._upload(request, rows, progress)

    def put_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        """Copy a local file to a device, byte for byte.

        With `resume`, an interrupted copy leaves what it has stored on the device, and the next copy continues there.
        Options: `fastflight.client.options.FileCopyOptions`.
        """
        keys, others = split_options("put_file", options)
        return self._board(device, **keys).put_file(path, local, **others)

    def get_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        """Copy a file of a device to a local file, byte for byte.

        With `resume`, an interrupted copy leaves `FILE.part`, and the next copy continues there if these bytes are
        still the beginning of the device's file. The old local file stays until the new one is complete. Options:
        `fastflight.client.options.FileCopyOptions`.
        """
        from fastflight.client.notebook import reading_bar

        keys, others = split_options("get_file", options)
        with reading_bar(options.get("progress")) as progress:
            return self._board(device, **keys).get_file(path, local, **{**others, "progress": progress})

    def put_tree(self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]) -> CopiedTree:
        """Copy the files of a local folder and its subfolders to a folder of a device. Links are not copied.

        The files are verified on the device before they replace the old ones. Other files there stay, unless the
        option `delete` is set. Options: `fastflight.client.options.TreeCopyOptions`.
        """
        keys, others = split_options("put_tree", options)
        return self._board(device, **keys).put_tree(folder, local, **others)

    def get_tree(self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]) -> CopiedTree:
        """Copy the files of a device's folder and its subfolders to a local folder.

        Each file replaces the old one when it is complete. Raises `DataError`, before anything is written, if a name is
        not safe to use on this computer. Options: `fastflight.client.options.TreeCopyOptions`.
        """
        keys, others = split_options("get_tree", options)
        return self._board(device, **keys).get_tree(folder, local, **others)

    def exec(
        self, device: str, code: str, *, timeout: float | None = None, mode: Mode = "async", interrupt: bool = False
    ) -> RowStream:
        """Run a piece of code on a device and read its output while it runs.

        If the code raises, the stream raises `DeviceException` after the last row. `timeout` is the number of seconds
        without output after which the code is interrupted.
        """
        request = call.build(DeviceExec, device=device, code=code, timeout=timeout, mode=mode, interrupt=interrupt)
        return self.read_request(request)

    def session(self, device: str, **options: Unpack[SessionOptions]) -> RowStream:
        """Read the live traffic of a device, from now on or from an earlier point.

        The stream ends at a limit, or when the device disconnects and `reconnect` is false; `summary["ended"]` gives
        the reason. Options: `fastflight.client.options.SessionOptions`.
        """
        request = call.build(DeviceSession, device=device, **request_keys("session", options))
        return self.read_request(request)

    def live(
        self,
        device: str,
        columns: Sequence[str] | None = None,
        *,
        seconds: float | None = answers.LIVE_SECONDS,
        window: float = answers.LIVE_SECONDS,
    ) -> LivePlot:
        """Return a moving plot of the numbers that a device prints, for a notebook: `display(client.live("demo"))`.

        It draws the last `window` seconds, until `seconds` are over or the cell is interrupted; None: no end. Numbers
        are found in lines of JSON and CSV. Without `columns`, all are drawn but times. Needs the extra `plot`.
        """
        from fastflight.client.live import live_plot

        return live_plot(self._connection, device, columns, seconds, window)

    def live_table(self, device: str, *, seconds: float | None = None) -> pa.Table:
        """Return the rows that a device has printed, as far as they are in memory, as a `pyarrow.Table`.

        With `seconds`, only the rows of the last `seconds`. The columns are `seq`, `time` and those that the device's
        entry declares, or that are recognised. `DataError` if it has printed too little, `RequestError` if that is no
        table.
        """
        return self.session(device, as_="rows", follow=False, since_seconds=seconds).to_arrow()

    def recording(self, name: str, **options: Unpack[RecordingOptions]) -> RowStream:
        """Read the recording of a device: all of it, or a range of the live session's sequence numbers or of times.

        The stream's `gaps` list what is missing, with the reason. Options:
        `fastflight.client.options.RecordingOptions`.
        """
        return self.read_request(call.build(Recording, name=name, **request_keys("recording", options)))

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        progress: Report | None = None,
    ) -> RowStream:
        """Read the result of a query: one SQL statement that only reads. The server needs the extra `sql`.

        Files and recordings are tables: `demo."readings.csv"`, `demo.recording`. `parameters` are values for `?` or
        `$1` in order, or for `$name` by name. Times and decimals are sent as text, which the server converts.
        """
        request = call.build(Sql, query=query, parameters=call.sql_parameters(parameters))
        return self.read_request(request, progress=progress)

    def recordings(self) -> list[Recorded]:
        """Return the server's recordings; their `state` says which of them are still being written."""
        return [answers.recorded_of(fields) for fields in self._connection.act("recordings")]

    def add_device(self, name: str, url: str, *, record: bool = False) -> None:
        """Add a device to the server, until it ends. `record`: also record it. Needs the scope `admin:*`.

        `url` is a serial port of the server's computer, `socket://`, `rfc2217://` or `sim:`.
        """
        self._connection.act("device.add", name=name, url=url, record=record)

    def remove_device(self, name: str) -> bool:
        """Remove a device from the server, until it starts again. Its streams end with an error.

        Return whether its line is closed; if not, a call still uses it, and it is closed after that.
        """
        return bool(self._connection.act_once("device.remove", name=name).get("closed"))

    def start_recording(self, device: str) -> Recorded:
        """Record a device from now on, until the server ends. Has no effect if the device is already being recorded."""
        return answers.recorded_of(self._connection.act_once("recording.start", device=device))

    def stop_recording(self, device: str) -> Recorded:
        """Stop recording a device. Returns when everything read so far is stored."""
        return answers.recorded_of(self._connection.act_once("recording.stop", device=device))

    def interact(
        self,
        device: str,
        *,
        format: SessionFormat = "bytes",
        schema: Mapping[str, str] | None = None,
        flush_ms: int = 0,
        mode: Mode = "async",
    ) -> Interaction:
        """Take the device's line, to send bytes and read the output. Raises `BusyError` while it is in use.

        The result is a context manager; leaving it releases the line.
        """
        request = call.build(DeviceSession, device=device, format=format, schema=schema, flush_ms=flush_ms, mode=mode)
        return self._connection.interaction(request)

    def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        """Return the entry of a file or folder. Raises `FileMissing` if there is none."""
        return self._board(device, interrupt=interrupt).stat(path)

    def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        """Have the device digest a file, or its first `limit` bytes. Raises `DeviceError` if the board cannot."""
        return self._board(device, interrupt=interrupt).hash(path, limit)

    def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Create a folder."""
        self._board(device, interrupt=interrupt).mkdir(path)

    def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        """Remove a file or an empty folder."""
        self._board(device, interrupt=interrupt).remove(path)

    def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        """Move a file or folder to the path `to` on the same device. A file at that path is replaced."""
        self._board(device, interrupt=interrupt).rename(path, to)

    def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        """Return what the board reports about itself: firmware, capabilities, free memory and storage."""
        return self._board(device, interrupt=interrupt).info()

    def reset(self, device: str, *, hard: bool = False, main: bool = True, interrupt: bool = False) -> None:
        """Restart the interpreter, which then runs `main.py` unless `main` is false; with `hard`, restart the board."""
        self._board(device, interrupt=interrupt).reset(hard=hard, main=main)

    def health(self) -> dict[str, Any]:
        """Return the server's own report of its health."""
        return self._connection.act_once("health")

    def stats(self) -> dict[str, Any]:
        """Return the server's counters."""
        return self._connection.act_once("stats")

    def cluster(self) -> dict[str, Any]:
        """Return the servers of the server's cluster, and the owners of devices. `RequestError` without a cluster."""
        return self._connection.act_once("cluster.status")

    def cluster_storage(self) -> dict[str, Any]:
        """Return the recorded rows of each device that wait to be stored in NATS, and the copies of what NATS stores.

        `oldest_waiting` has the time of the oldest of these rows, and its age in seconds. `replicas` has for the stream
        and each bucket the number of copies, how many there should be (`wanted`) and are current, and the nodes that
        are behind. `unanswered` has the servers that gave no answer, so that their waiting rows are not known.
        `RequestError` without a cluster.
        """
        return self._connection.act_once("cluster.storage")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the devices, and what to type next."""
        from fastflight.client.notebook import NEXT, client_html

        return client_html(self._connection, NEXT)

    def close(self) -> None:
        """Close the connection. Make no calls after this; streams that are open continue until they are left."""
        self._connection.close()

    def _board(self, device: str, **keys: Any) -> ServerBoard:
        from fastflight.client.server_board import ServerBoard

        return ServerBoard(self._connection, device, keys, self._new_scope())

    def _upload(self, request: Request, rows: Any, progress: Report | None) -> Written:
        upload = self._connection.upload(request, rows, progress)
        with self._new_scope().stopping(upload.give_up):
            return upload.run()

    def _new_scope(self) -> CancelScope:
        """Return the scope of one call. Nothing cancels it here."""
        return CancelScope()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
