"""`LightClient`: the verbs of `FastFlightClient` that short commands use, without loading pyarrow."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from fastflight.client import answers
from fastflight.client.answers import Copied, CopiedTree, Digest, Entry
from fastflight.client.device_files import Download
from fastflight.client.file_copy import GetFile
from fastflight.client.light.answer import (
    ACTION_BODY,
    ACTION_TYPE,
    RESULT_BODY,
    TICKET,
    LightRows,
    encode_field,
    fields_of,
)
from fastflight.client.light.calls import Connection
from fastflight.client.light.files import LightFiles
from fastflight.client.options import FileCopyOptions, FileOptions, TreeCopyOptions, request_keys
from fastflight.client.tree_copy import GetTree
from fastflight.runtime.tracing import outgoing_headers


class LightClient:
    """A connection to the server at `location`, `grpc://host:port`. Its verbs do what those of `FastFlightClient` do.

    The server checks the requests: here, nothing is checked before it is sent.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._connection = Connection(location)

    def devices(self) -> list[answers.Device]:
        return [answers.device_of(each) for each in self.act("devices")]

    def ls(self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False) -> list[Entry]:
        keys = {"device": device, "path": path, "recursive": recursive, "interrupt": interrupt}
        return answers.entries_of_rows(self._rows("device.listing", **keys))

    def exec_rows(
        self, device: str, code: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> Generator[dict[str, Any], None, None]:
        """Run code and yield its output by lines, as rows of a `device.exec` request. At the end, raise its error."""
        return self._rows("device.exec", device=device, code=code, timeout=timeout, interrupt=interrupt)

    def file_bytes(
        self, device: str, path: str, *, offset: int = 0, limit: int | None = None, **options: Unpack[FileOptions]
    ) -> Download[bytes]:
        """Read the bytes of a file from `offset` on, at most `limit`."""
        return LightFiles(self, device, options).read(path, offset, limit)

    def get_file(self, device: str, path: str, local: str | Path, **options: Unpack[FileCopyOptions]) -> Copied:
        files = LightFiles(self, device, request_keys("get_file", options))
        return GetFile(files, path, local, options).run()

    def get_tree(self, device: str, folder: str, local: str | Path, **options: Unpack[TreeCopyOptions]) -> CopiedTree:
        files = LightFiles(self, device, request_keys("get_tree", options))
        return GetTree(files, folder, local, options).run()

    def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        return answers.entry_of(self.act_once("file.stat", device=device, path=path, interrupt=interrupt))

    def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        body = {"device": device, "path": path, "limit": limit, "interrupt": interrupt}
        return answers.digest_of(self.act_once("file.hash", **body))

    def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        self.act("file.mkdir", device=device, path=path, interrupt=interrupt)

    def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        self.act("file.remove", device=device, path=path, interrupt=interrupt)

    def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        self.act("file.rename", device=device, path=path, to=to, interrupt=interrupt)

    def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        return self.act_once("device.info", device=device, interrupt=interrupt)

    def reset(self, device: str, *, hard: bool = False, main: bool = True, interrupt: bool = False) -> None:
        self.act("device.reset", device=device, **answers.reset_keys(hard, main), interrupt=interrupt)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def act(self, name: str, /, **body: Any) -> list[Any]:
        """Do an action and return its results. Arguments that are None are not sent."""
        message = encode_field(ACTION_TYPE, name.encode()) + encode_field(ACTION_BODY, _json(body))
        results = self._connection.call("DoAction", message, self._headers(), answers.DEFAULT_TIMEOUT)
        return answers.results_of([fields_of(each).get(RESULT_BODY, b"") for each in results], self.location)

    def act_once(self, name: str, /, **body: Any) -> dict[str, Any]:
        """Do an action that returns exactly one JSON object, and return that."""
        return answers.single(self.act(name, **body), name, self.location)

    def ask(self, type: str, /, **keys: Any) -> LightRows:
        """Ask for the rows of a request. Keys that are None are not sent."""
        message = encode_field(TICKET, _json({"type": type, **keys}))
        return LightRows(self._connection.call("DoGet", message, self._headers()), self.location)

    def _rows(self, type: str, /, **keys: Any) -> Generator[dict[str, Any], None, None]:
        with closing(self.ask(type, **keys)) as answer:
            for rows, _ in answer:
                yield from rows

    def _headers(self) -> list[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in outgoing_headers()]


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps({key: value for key, value in values.items() if value is not None}).encode()
