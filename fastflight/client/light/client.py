"""`LightClient`: the verbs of `FastFlightClient` that short commands use, without loading pyarrow."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from fastflight.client import answers
from fastflight.client.answers import Digest, Entry
from fastflight.client.light.answer import (
    ACTION_BODY,
    ACTION_TYPE,
    RESULT_BODY,
    TICKET,
    encode_field,
    fields_of,
    rows_of,
)
from fastflight.client.light.calls import Connection
from fastflight.runtime.tracing import outgoing_headers


class LightClient:
    """A connection to the server at `location`, `grpc://host:port`. Its verbs do what those of `FastFlightClient` do.

    The server checks the requests: here, nothing is checked before it is sent.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._connection = Connection(location)

    def devices(self) -> list[answers.Device]:
        return [answers.device_of(each) for each in self._act("devices")]

    def ls(self, device: str, path: str = "/", *, recursive: bool = False, interrupt: bool = False) -> list[Entry]:
        request = {
            "type": "device.listing",
            "device": device,
            "path": path,
            "recursive": recursive,
            "interrupt": interrupt,
        }
        return answers.entries_of_rows(self._rows(request))

    def exec_rows(
        self, device: str, code: str, *, timeout: float | None = None, interrupt: bool = False
    ) -> Generator[dict[str, Any], None, None]:
        """Run code and yield its output by lines, as rows of a `device.exec` request. At the end, raise its error."""
        request = {"type": "device.exec", "device": device, "code": code, "interrupt": interrupt}
        return self._rows(request if timeout is None else {**request, "timeout": timeout})

    def stat(self, device: str, path: str, *, interrupt: bool = False) -> Entry:
        return answers.entry_of(self._act_once("file.stat", device=device, path=path, interrupt=interrupt))

    def hash(self, device: str, path: str, *, limit: int | None = None, interrupt: bool = False) -> Digest:
        body = {"device": device, "path": path, "limit": limit, "interrupt": interrupt}
        return answers.digest_of(self._act_once("file.hash", **body))

    def mkdir(self, device: str, path: str, *, interrupt: bool = False) -> None:
        self._act("file.mkdir", device=device, path=path, interrupt=interrupt)

    def remove(self, device: str, path: str, *, interrupt: bool = False) -> None:
        self._act("file.remove", device=device, path=path, interrupt=interrupt)

    def rename(self, device: str, path: str, to: str, *, interrupt: bool = False) -> None:
        self._act("file.rename", device=device, path=path, to=to, interrupt=interrupt)

    def info(self, device: str, *, interrupt: bool = False) -> dict[str, Any]:
        return self._act_once("device.info", device=device, interrupt=interrupt)

    def reset(self, device: str, *, hard: bool = False, interrupt: bool = False) -> None:
        self._act("device.reset", device=device, kind=answers.reset_kind(hard), interrupt=interrupt)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _act(self, name: str, /, **body: Any) -> list[Any]:
        given = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
        message = encode_field(ACTION_TYPE, name.encode()) + encode_field(ACTION_BODY, given)
        results = self._connection.call("DoAction", message, self._headers(), answers.DEFAULT_TIMEOUT)
        return answers.results_of([fields_of(each).get(RESULT_BODY, b"") for each in results], self.location)

    def _act_once(self, name: str, /, **body: Any) -> dict[str, Any]:
        return answers.single(self._act(name, **body), name, self.location)

    def _rows(self, request: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        message = encode_field(TICKET, json.dumps(request).encode())
        with closing(self._connection.call("DoGet", message, self._headers())) as messages:
            yield from rows_of(messages, self.location)

    def _headers(self) -> list[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in outgoing_headers()]
