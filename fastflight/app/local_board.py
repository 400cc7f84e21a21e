"""One board without a server that runs already, for commands.

`LocalBoard` has the verbs that answer without rows, and copies: they talk to the board directly, and start in a third
of the time that a server takes. For all others `open_local_board` starts a server in this process, so that every verb
works on a board on the desk as it works on a server's devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

from fastflight.app.board_files import BoardFiles, entry_of
from fastflight.app.board_terminal import BoardTerminal
from fastflight.app.device_address import device_address, name_and_url
from fastflight.client.answers import Copied, CopiedTree, Device, Digest, Entry
from fastflight.client.device_files import Download
from fastflight.client.file_copy import GetFile, PutFile
from fastflight.client.options import (
    FileCopyOptions,
    FileOptions,
    TreeCopyOptions,
    request_keys,
)
from fastflight.client.tree_copy import GetTree, PutTree
from fastflight.device import Inventory, Session, Transfer
from fastflight.device.execute import OutputLines
from fastflight.errors import DeviceError, RequestError, TransportError, nearest
from fastflight.service.choices import Method
from fastflight.transport.identity import FoundPort, format_ports, system_ports

if TYPE_CHECKING:
    from fastflight.app.running import RunningServer

# The name of a board that is given as a URL alone, for `DEVICE:PATH` and in errors.
BOARD = "board"
# The URL that means the only board that is plugged in.
AUTO = "auto"


class LocalBoard:
    """The verbs of `InterruptibleClient` that need no tables, on one board of this computer.

    `device` is `NAME=URL`, or the URL of a board that is then named `BOARD`. The URL may be `auto`, as for `board_url`.
    Raises `RequestError` if it is not a device URL.
    """

    def __init__(self, device: str, *, agent: bool = False) -> None:
        """`agent`: the board's program runs the agent."""
        self.name, url = name_and_url(device, BOARD)
        self.url = board_url(url)
        self._inventory = Inventory({self.name: self.url}, parse=device_address, agents=[self.name] if agent else [])

    @classmethod
    def of(cls, inventory: Inventory) -> LocalBoard:
        """Return the verbs on the devices of `inventory`, which stays its owner's: do not call `close`."""
        self = cls.__new__(cls)
        self.name, self.url, self._inventory = "", "", inventory
        return self

    def devices(self) -> list[Device]:
        return [Device(self.name, self.url, open=self._inventory.device(self.name).is_open, holder=None)]

    def ls(self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False) -> list[Entry]:
        with self._session(device, interrupt) as session:
            return [entry_of(each) for each in session.list(path, recursive=recursive)]

    def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        return self._files(device, {"interrupt": interrupt}).stat(path)

    def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        return self._files(device, {"interrupt": interrupt}).hash(path, limit)

    def file_bytes(
        self, device: str, path: str, *, offset: int = 0, limit: int | None = None, **options: Unpack[FileOptions]
    ) -> Download[bytes]:
        """Read the bytes of a file from `offset` on, at most `limit`."""
        return self._files(device, options).read(path, offset, limit)

    def put_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        return PutFile(self._files(device, request_keys("put_file", options)), path, local, options).run()

    def get_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        return GetFile(self._files(device, request_keys("get_file", options)), path, local, options).run()

    def put_tree(self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]) -> CopiedTree:
        return PutTree(self._files(device, request_keys("put_tree", options)), folder, local, options).run()

    def get_tree(self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]) -> CopiedTree:
        return GetTree(self._files(device, request_keys("get_tree", options)), folder, local, options).run()

    def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        with self._session(device, interrupt) as session:
            session.mkdir(path)

    def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        with self._session(device, interrupt) as session:
            session.remove(path)

    def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        with self._session(device, interrupt) as session:
            session.rename(path, to)

    def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        with self._session(device, interrupt) as session:
            return {"name": device, **asdict(session.info())}

    def reset(self, device: str, *, hard: bool = False, main: bool = True, interrupt: bool = False) -> None:
        with self._session(device, True) as session:  # a reset always stops the program
            session.hard_reset() if hard else session.soft_reset(main=main)

    def exec_rows(
        self, device: str, code: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> Generator[dict[str, Any], None, None]:
        """Run code and yield its output by lines, as rows of a `device.exec` request. At the end, raise its error."""
        output, numbers = OutputLines(), itertools.count()
        limit = {} if timeout is None else {"timeout": timeout}
        with (
            self._session(device, interrupt) as session,
            closing(session.follow(code, **limit)) as pieces,
        ):
            try:
                for piece in pieces:
                    yield from _rows(output.feed(piece), numbers)
            except DeviceError:
                # The rest of the output comes before the error.
                yield from _rows(output.finish(), numbers)
                raise
            yield from _rows(output.finish(), numbers)

    def terminal(self, device: str) -> BoardTerminal:
        """Take the board's line, to send keys and receive what the board prints."""
        return BoardTerminal(self._inventory.device(device))

    def close(self) -> None:
        """Close the board's line. The next call opens it again."""
        self._inventory.close()

    def _files(self, device: str, keys: Mapping[str, Any]) -> BoardFiles:
        method = keys.get("transfer", "auto")
        if method not in get_args(Method):
            raise RequestError(
                f"no method is named {method!r}", where="transfer", hint=nearest(method, get_args(Method))
            )
        lease = partial(self._session, device, bool(keys.get("interrupt")))
        return BoardFiles(device, lease, Transfer(method, keys.get("deflate")))

    @contextmanager
    def _session(self, device: str, interrupt: bool) -> Iterator[Session]:
        with self._inventory.device(device).lease("a command", interrupt=interrupt) as session:
            yield session


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
