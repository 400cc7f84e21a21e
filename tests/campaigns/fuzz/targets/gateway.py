"""The gateway's application with any request: an answer that is whole, that nobody else may read, and never a 500.

Behind it is a backend of this page alone, so that what a client wrote is all that there is: method, path, query,
headers, content in any chunks, messages of a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pyarrow as pa
from prometheus_client import CollectorRegistry

from fastflight.access.authenticator import Authenticator
from fastflight.access.identity import ANYBODY, Identity, scopes
from fastflight.access.tokens import Book, Token, digest_of
from fastflight.concurrency import Channel
from fastflight.errors import FileMissing
from fastflight.gateway import application
from fastflight.gateway.asgi import Message, Scope
from fastflight.gateway.backend import Backend, StreamedAnswer
from fastflight.gateway.origins import OriginPolicy
from fastflight.runtime.tracing import REQUEST_ID_FORM
from fastflight.service import Catalog, make_request, requests
from fastflight.service.requests import FILE_DESCRIPTION, DeviceFile, Request
from fastflight.service.source import Note
from fastflight_benchmark.mock import Mock
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target
from tests.support.function_source import FunctionSource

T = TypeVar("T")
# The loop closes generators that were left half read: one after the other, where one reads the next.
TURNS = 3


class Loop:
    """One event loop for all executions, since making one takes longer than most requests.

    `run` is for within `running`; no task may outlive what started it.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            yield
        self._loop = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            for _ in range(TURNS):
                self._loop.run_until_complete(asyncio.sleep(0))
            assert not (left := asyncio.all_tasks(self._loop)), left


LOOP = Loop()
CATALOG = Catalog()
for _request in (
    requests.DeviceFile,
    requests.FleetFile,
    requests.DeviceTree,
    requests.DeviceListing,
    requests.DeviceExec,
    requests.DeviceSession,
    requests.Recording,
    Mock,
):
    CATALOG.add(FunctionSource(_request))
TEXT = f"ff_{'0' * 16}_{'s' * 43}"
TOKEN = Token("0" * 16, "ann", digest_of("s" * 43), scopes(["read:*"]), datetime(2025, 1, 1, tzinfo=UTC))
KNOWN = Authenticator(lambda: Book((TOKEN,)).encode())
CONTENT = b"0123456789"
TAG = b'"crc32-%08x-%d"' % (zlib.crc32(CONTENT), len(CONTENT))
ROWS = pa.RecordBatch.from_pylist([{"i": 1, "s": "a", "b": b"\xff"}, {"i": None, "s": "\u2028", "b": None}])
ENTRIES = pa.RecordBatch.from_pylist([{"path": "/dir/a", "kind": "file", "size": 10, "modified": None}])
OTHER = b"https://page.example"
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "get")
PATHS = (
    "/devices/demo/files/a.csv", "/devices/demo/files/", "/devices/demo/files/dir", "/devices/demo", "/devices",
    "/devices/demo/info", "/devices/demo/exec", "/stream", "/tickets", "/actions/health", "/recordings/demo", "/health",
    "/metrics", "/", "/openapi.json", "/health/ready", "/recordings", "/cluster", "/docs", "/live",
)  # fmt: skip
SOCKETS = ("/ws/repl/x", "/ws/repl/demo", "/ws/none", "/ws/fleet/x", "/elsewhere")
QUERIES = (
    b"", b"format=jsonl", b"format=parquet", b"interrupt=true", b"columns=i,s&batch_rows=1", b"for=tcp", b"as=csv",
    b"format=csv&formulas=escape",
    b"type=device.listing", b"file_format=csv&on_error=skip&schema=x", b"from_seq=1",
)  # fmt: skip
REQUESTS = (
    b'{"type":"mock","total_rows":2}', b'{"type":"device.session","device":"demo"}', b'{"code":"print(1)"}', b"{}",
    b'{"device":"demo","path":"/a"}', b"i,s\n1,a\n", b'{"i":1}\n',
)  # fmt: skip
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"range", b"bytes=2-5"), (b"range", b"bytes=0-"), (b"range", b"bytes=5-2"), (b"range", b"bytes=-3"),
    (b"range", b"bytes=4-"), (b"if-range", TAG), (b"if-match", TAG), (b"if-none-match", TAG), (b"if-match", b"*"),
    (b"content-encoding", b"gzip"), (b"content-range", b"bytes 0-1/2"), (b"accept", b"text/csv"),
    (b"accept", b"application/jsonl;q=0.5,*/*;q=0"), (b"content-type", b"text/csv"), (b"origin", OTHER),
    (b"origin", b"http://127.0.0.1:8000"), (b"origin", b"null"), (b"sec-fetch-site", b"cross-site"),
    (b"access-control-request-method", b"PUT"), (b"authorization", b"Bearer " + TEXT.encode()),
    (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), (b"tracestate", b"a=1,b=2"),
    (b"x-request-id", b"mine-1"), (b"if-none-match", b'W/"x", *'), (b"content-length", b"5"), (b"host", b"localhost"),
    (b"accept-encoding", b"gzip"), (b"content-type", b"application/vnd.apache.arrow.stream"),
)  # fmt: skip
SECRETS = (b"internal error", b"Traceback", b"site-packages", b"object at 0x")


class Canned:
    """A `Backend` whose answers are always the same."""

    def __init__(self, guarded: bool) -> None:
        self.guarded = guarded

    def identify(self, authorization: str, certificate: str) -> Identity:
        return KNOWN.authenticate(authorization)

    def check(self, caller: Identity) -> None:
        pass

    def permit(self, request: Request, doing: str, caller: Identity) -> None:
        pass

    def permit_action(self, name: str, caller: Identity) -> None:
        pass

    def make_request(self, keys: Mapping[str, Any], *, strict: bool = True) -> Request:
        return make_request(keys, CATALOG, strict=strict)

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, *, ahead_bytes: int = 0, caller: Identity = ANYBODY
    ) -> AsyncIterator[StreamedAnswer]:
        batch = ROWS
        if isinstance(request, DeviceFile):
            batch = described(request)
        elif request.type == "device.listing":
            batch = ENTRIES
        yield StreamedAnswer(batch.schema, _pieces(batch), lambda: {"rows": batch.num_rows})

    @contextlib.asynccontextmanager
    async def talk(
        self, request: Request, typed: Channel[pa.RecordBatch], *, ahead_bytes: int, caller: Identity = ANYBODY
    ) -> AsyncIterator[StreamedAnswer]:
        rows = pa.RecordBatch.from_pylist([{"seq": 0, "direction": "rx", "data": b">>> "}])
        yield StreamedAnswer(rows.schema, _pieces(rows), lambda: {"rows": 1})

    async def write(
        self, request: Request, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], *, caller: Identity = ANYBODY
    ) -> Mapping[str, Any]:
        return {"rows": sum([batch.num_rows async for batch in batches]), "bytes": 0, "sha256": ""}

    async def act(self, name: str, body: bytes, caller: Identity = ANYBODY) -> list[Mapping[str, Any]]:
        if name == "devices":
            return [{"name": "demo", "url": "sim:", "open": True, "holder": None, "recording": None}]
        return [{"status": "serving"}]


def described(request: DeviceFile) -> pa.RecordBatch:
    """What is asked of a file, whose content is always the same; its schema says what it is."""
    if "missing" in request.path:
        raise FileMissing("no such file", where=request.path)
    folder = request.path.endswith(("/", "dir"))
    batch = ROWS
    if request.format == "raw":
        end = len(CONTENT) if request.limit is None else request.offset + request.limit
        batch = pa.RecordBatch.from_pylist([{"offset": request.offset, "data": CONTENT[request.offset : end]}])
    said = {"kind": "folder" if folder else "file", "size": len(CONTENT), "modified": None}
    if request.describe == "digest":
        said |= {"algorithm": "crc32", "digest": f"{zlib.crc32(CONTENT):08x}"}
    rows = batch.slice(0, 0) if folder or request.limit == 0 else batch
    return rows.replace_schema_metadata({FILE_DESCRIPTION: json.dumps(said).encode()} if request.describe else None)


async def _pieces(batch: pa.RecordBatch) -> AsyncIterator[tuple[pa.RecordBatch, Note | None]]:
    yield batch, {"note": "x"}
    yield batch.slice(0, 0), None


APPS = tuple(
    application(cast(Backend, Canned(guarded)), CollectorRegistry(), OriginPolicy([OTHER.decode()]))
    for guarded in (False, True)
)


async def asked(app: Any, scope: Scope, messages: list[Message]) -> list[Message]:
    """What the application sends to a client that says this, and then waits, or leaves where it has said so."""
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        return await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def headers_of(material: Material) -> list[tuple[bytes, bytes]]:
    """A host, and up to three more, of which any may be odd."""
    found = [(b"host", b"127.0.0.1:8000")]
    for _ in range(material.byte() & 3):
        name, value = material.pick(HEADERS)
        kind = material.byte()
        if kind & 1:
            value = value[: kind >> 4] + material.piece()
        # No server lets these through.
        value = value.translate(None, b"\r\n\0")
        found = [(b"host", value)] if name == b"host" else [*found, (name, value)]
    return found


def check_headers(headers: list[tuple[bytes, bytes]], given: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    assert all(b"\r" not in value and b"\n" not in value for _, value in headers)
    ids = [value for name, value in headers if name == b"x-request-id"]
    assert len(ids) == 1 and REQUEST_ID_FORM.fullmatch(ids[0].decode())
    told = dict(headers)
    if shared := told.get(b"access-control-allow-origin"):
        assert shared == OTHER and (b"origin", OTHER) in given
    return told


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    app = APPS[kind & 1]
    headers = headers_of(material)
    path, method = material.pick(SOCKETS if kind & 2 else PATHS), material.pick(METHODS)
    if kind & 4:
        path += material.piece().decode("utf-8", "replace")
    query = material.piece() if kind & 8 else material.pick(QUERIES)
    scope: Scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query, "headers": headers, "scheme": "http", "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000), "root_path": "",
    }  # fmt: skip
    leaves, pattern, body = material.byte() & 1, material.byte(), material.pick(REQUESTS)
    if kind & 16:
        body = body[: material.byte()] + material.rest()
    if kind & 2:
        scope.update(type="websocket", scheme="ws")
        said: list[Message] = [{"type": "websocket.connect"}]
        for number, piece in enumerate(cut(body, pattern, 2)):
            text = number & 1 or pattern & 1
            content = {"text": piece.decode("utf-8", "replace")} if text else {"bytes": piece}
            said.append({"type": "websocket.receive", **content})
        said.append({"type": "websocket.disconnect", "code": 1005})
        talked(LOOP.run(asked(app, scope, said)), headers)
        return
    chunks = cut(body, pattern, 2)
    said = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if leaves:
        said.append({"type": "http.disconnect"})
    else:
        said.append({"type": "http.request", "body": b"", "more_body": False})
    sent = LOOP.run(asked(app, scope, said))
    if not sent:
        assert leaves
        return
    start, *parts = sent
    told = check_headers(start["headers"], headers)
    answer = b"".join(bytes(part.get("body", b"")) for part in parts)
    assert 200 <= start["status"] < 500 or start["status"] in (501, 503), (start, answer)
    assert not any(secret in answer for secret in SECRETS), answer
    if not leaves:
        assert parts and not parts[-1].get("more_body", False)
        if b"content-length" in told and method != "HEAD":
            assert len(answer) == int(told[b"content-length"]), (told, answer)
        if start["status"] == 206:
            assert answer == CONTENT[int(told[b"content-range"].split()[1].split(b"-")[0]) :][: len(answer)]


def talked(sent: list[Message], given: list[tuple[bytes, bytes]]) -> None:
    """A WebSocket was refused, or accepted and ended with a code that is not that of an error here."""
    if not sent:
        return
    check_headers(sent[0].get("headers", []), given)
    if sent[0]["type"] == "websocket.http.response.start":
        assert 400 <= sent[0]["status"] < 500, sent
        return
    assert sent[0]["type"] == "websocket.accept"
    assert all(message.get("code") != 4500 for message in sent), sent
    shown = b"".join(message.get("text", "").encode() for message in sent if message.get("text"))
    assert not any(secret in shown for secret in SECRETS), shown


TARGET = Target(
    run,
    seeds=(
        *(bytes([0, 0, path, 0, 0, 0, 0, 0]) for path in range(len(PATHS))),
        *(bytes([2, 0, path, 0, 0, 0, 0, request]) for path in range(4) for request in range(3)),
        *(bytes([0, 1, header, 0, 0, 0, 0, 0, 0, 0]) for header in range(len(HEADERS))),
        *(bytes([0, 0, 0, 0, query, 0, 0, 0]) for query in range(len(QUERIES))),
        b"\x00\x00\x00\x02\x00\x00\x00\x05",
        b"\x00\x01\x05\x00\x00\x02\x00\x00\x11\x05",
        b"\x01\x01\x0b\x00\x04\x00\x00\x00\x00\x00",
        b"\x00\x00\x07\x01\x00\x00\x00\x00",
        b"\x00\x00\x08\x01\x05\x00\x00\x00",
        b"\x04\x00\x00\x00\x08/../%ff\xff\x00\x00\x00\x00",
        b"\x10\x02\x00\x01\x07-1,3-99\x06\x00\x00\x00\x00\x00\x00\x05\x03xyz",
    ),
    past=(b"\x08\x00\x07\x00\x02\xe4\xef\x00\x00\x00",),
    max_bytes=96,
    seconds=20,
    running=LOOP.running,
)
