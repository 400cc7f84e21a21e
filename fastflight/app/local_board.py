"""One board without a server that runs already, for commands.

`LocalBoard` has the verbs of a `Board`: they talk to the board directly, and start in a third of the time that a server
takes. For rows, `open_local_board` starts a server in this process, so that every verb works on a board on the desk as
it works on a server's devices.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, get_args

from fastflight.app.board_terminal import BoardTerminal
from fastflight.app.device_address import device_address, name_and_url
from fastflight.client.answers import EPOCH, Digest, Entry, RemoteEntry, Written
from fastflight.client.answers import Device as KnownDevice
from fastflight.client.board import Board, TreeBlock
from fastflight.client.file_copy import FileToSend
from fastflight.client.local_files import LocalEntry, pieces_of
from fastflight.client.options import FileOptions
from fastflight.client.progress import Report
from fastflight.device import Device, FileEntry, Inventory, PartialWrite, Resumption, Session, Transfer
from fastflight.device.execute import OutputLines
from fastflight.errors import (
    DataError,
    DeviceError,
    RequestError,
    TransportError,
    nearest,
)
from fastflight.service.choices import Method
from fastflight.transport.identity import FoundPort, format_ports, system_ports

if TYPE_CHECKING:
    from fastflight.app.running import RunningServer

# The name of a board that is given as a URL alone, for `DEVICE:PATH` and in errors.
BOARD = "board"
# The URL that means the only board that is plugged in.
AUTO = "auto"


class PluggedBoard:
    """A board of this computer that no server has.

    `device` is `NAME=URL`, or the URL of a board that is then named `BOARD`. The URL may be `auto`, as for `board_url`.
    `agent`: the board's program runs the agent. Raises `RequestError` if the URL is not a device URL.
    """

    def __init__(self, device: str, *, agent: bool = False) -> None:
        self.name, url = name_and_url(device, BOARD)
        self.url = board_url(url)
        self._inventory = Inventory({self.name: self.url}, parse=device_address, agents=[self.name] if agent else [])

    def devices(self) -> list[KnownDevice]:
        """Return the board, as a server lists its devices."""
        device = self._inventory.device(self.name)
        return [KnownDevice(self.name, self.url, open=device.is_open, holder=None, kind=device.kind)]

    def board(self, device: str = BOARD, **options: Unpack[FileOptions]) -> LocalBoard:
        """Return the board. Raises `UnknownName` if it has another name."""
        return LocalBoard(self._inventory.device(device), **options)

    def close(self) -> None:
        """Close the board's line. The next call opens it again."""
        self._inventory.close()


class LocalBoard(Board):
    """A device of this process. `mode` has no effect: all is done in the thread of the caller."""

    def __init__(self, device: Device, **options: Unpack[FileOptions]) -> None:
        method = options.get("transfer", "auto")
        if method not in get_args(Method):
            raise RequestError(
                f"no method is named {method!r}", where="transfer", hint=nearest(method, get_args(Method))
            )
        self.name = device.name
        self._device = device
        self._interrupt = bool(options.get("interrupt"))
        self._transfer = Transfer(method, options.get("deflate"))

    def ls(self, path: str = "/", *, recursive: bool = False) -> list[Entry]:
        with self._session() as session:
            return [_entry_of(each) for each in session.list(path, recursive=recursive)]

    def stat(self, path: str) -> Entry:
        with self._session() as session:
            return _entry_of(session.stat(path))

    def hash(self, path: str, limit: int | None = None) -> Digest:
        with self._session() as session:
            algorithm, digest = session.hash(path, limit=limit)
        if not algorithm:
            raise DeviceError("this board cannot compute hashes", where=f"{self.name}:{path}", hint="Copy the file")
        return Digest(algorithm, digest)

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        with self._session() as session:
            found = session.hashes(folder)
        if not all(each.algorithm for each in found):
            raise DeviceError("this board cannot compute hashes", where=f"{self.name}:{folder}")
        return [(each.path, RemoteEntry(each.size, each.algorithm, each.digest)) for each in found]

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> Generator[bytes, None, None]:
        with self._session() as session:
            yield from self._blocks(session, path, offset, limit)

    def read_tree(
        self, folder: str, paths: Sequence[str]
    ) -> Generator[tuple[Sequence[str], Sequence[TreeBlock]], None, None]:
        with self._session() as session:
            for path in paths:
                offset = 0
                for data in self._blocks(session, f"{folder}/{path}"):
                    yield (), [(path, offset, data)]
                    offset += len(data)
                if not offset:
                    yield (), [(path, 0, b"")]

    def write(self, path: str, file: FileToSend, report: Report | None) -> Written:
        keep, resumption = file.resume_at is not None, None
        with self._session() as session:
            part = session.part(path) if keep else None
            start = _start(file, part)
            if part is not None and start:
                resumption = Resumption(part, file.sha256)
            written = session.write(
                path,
                _checked(file, start, report),
                resume=resumption,
                keep=keep,
                transfer=self._transfer,
                size=file.size,
            )
        return Written(0, written.bytes, written.sha256)

    def write_tree(self, folder: str, files: Sequence[LocalEntry], report: Report | None) -> Written:
        done = 0

        def content(entry: LocalEntry) -> Generator[bytes, None, None]:
            nonlocal done
            for _, data in pieces_of(entry.local):
                yield data
                done += len(data)
                if report is not None:
                    report(0, done, None)

        with self._session() as session:
            session.write_tree(folder, ((each.path, content(each)) for each in files), transfer=self._transfer)
        return Written(0, done, "")

    def remove(self, path: str) -> None:
        with self._session() as session:
            session.remove(path)

    def mkdir(self, path: str) -> None:
        with self._session() as session:
            session.mkdir(path)

    def rename(self, path: str, to: str) -> None:
        with self._session() as session:
            session.rename(path, to)

    def info(self) -> dict[str, Any]:
        if (known := self._device.known_info(interrupt=self._interrupt)) is not None:
            return {"name": self.name, **asdict(known)}
        with self._session() as session:
            return {"name": self.name, **asdict(session.info())}

    def reset(self, *, hard: bool = False, main: bool = True) -> None:
        with self._device.lease("a command", interrupt=True) as session:  # a reset always stops the program
            session.hard_reset() if hard else session.soft_reset(main=main)

    def exec(self, code: str, timeout: float | None = None) -> Generator[dict[str, Any], None, None]:
        output, numbers = OutputLines(), itertools.count()
        limit = {} if timeout is None else {"timeout": timeout}
        with self._session() as session, closing(session.follow(code, **limit)) as blocks:
            try:
                for data in blocks:
                    yield from _rows(output.feed(data), numbers)
            except DeviceError:
                # The rest of the output comes before the error.
                yield from _rows(output.finish(), numbers)
                raise
            yield from _rows(output.finish(), numbers)

    def terminal(self) -> BoardTerminal:
        return BoardTerminal(self._device)

    def _session(self) -> AbstractContextManager[Session]:
        return self._device.lease("a command", interrupt=self._interrupt)

    def _blocks(
        self, session: Session, path: str, offset: int = 0, limit: int | None = None
    ) -> Generator[bytes, None, None]:
        with closing(session.read(path, offset=offset, limit=limit, transfer=self._transfer)) as blocks:
            yield from filter(None, blocks)


def _entry_of(entry: FileEntry) -> Entry:
    """Return an entry of a board as the clients do."""
    modified = None if entry.modified is None else EPOCH + timedelta(seconds=entry.modified)
    return Entry(entry.path, entry.kind, entry.size, modified)


def _start(file: FileToSend, part: PartialWrite | None) -> int:
    """Return the offset at which to go on after the partial file `part`."""
    if part is None or file.resume_at is None:
        return 0
    return file.resume_at(part.size, Digest(part.algorithm, part.digest))


def _checked(file: FileToSend, start: int, report: Report | None) -> Generator[bytes, None, None]:
    """Yield the bytes of a file from `start` on. The next piece is taken when the board has stored the one before.

    Raises `DataError` at the end if the file is no longer what it was. A resumed file is checked on the board, as a
    whole.
    """
    sha256 = hashlib.sha256()
    for offset, data in pieces_of(file.source, start):
        yield data
        sha256.update(data)
        if report is not None:
            report(0, offset + len(data), file.size)
    if not start and sha256.hexdigest() != file.sha256:
        raise DataError("the file changed while it was copied", where=str(file.source), hint="Try again")


def _rows(lines: Iterable[str], numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC)
    return ({"line": next(numbers), "time": now, "text": line} for line in lines)


def open_local_board(name: str, url: str, *, agent: bool = False) -> RunningServer:
    """Start a server for the board at `url`, on a free port of the loopback interface.

    Raises `RequestError` if `url` is not a device URL.
    """
    # Importing the server takes longer than most commands take to run.
    from fastflight.app.compose import open_server
    from fastflight.app.config import Config, DeviceTable

    devices = {name: DeviceTable(url=url, agent=agent)}
    return open_server(Config(location="grpc://127.0.0.1:0", devices=devices, shards=1, drain_seconds=0.0))


def board_url(url: str) -> str:
    """Return `url`, or for `auto` that of the only board that is plugged in, as `find_board` finds it."""
    return find_board(system_ports()) if url == AUTO else url


def find_board(ports: Iterable[FoundPort]) -> str:
    """Return the only one of `ports` that belongs to a USB device. `TransportError` if there is none, or several."""
    boards = [port for port in ports if port.vid is not None]
    if not boards:
        raise TransportError(
            "no board is plugged in", hint="Plug one in, or name its port or URL: --device socket://host:port"
        )
    if len(boards) > 1:
        raise TransportError(
            f"{len(boards)} boards are plugged in: {format_ports(boards)}",
            hint=f"Choose one: --device {min(board.device for board in boards)}",
        )
    return boards[0].device
