"""The relay in a browser: the module `relay.js` in headless Chromium, which reports what it saw."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastflight.gateway
from fastflight.concurrency import Shard
from fastflight.gateway import AllowedTargets, OriginPolicy, Relay, listen
from fastflight.gateway.asgi import Receive, Scope, Send
from tests.support.browser import OPTIONS

from .relay_user import echo, flood, target

MODULE = Path(fastflight.gateway.__file__).parent / "page" / "static" / "relay.js"
# A browser's first start on a busy machine.
SOON = 60.0
PAGE = """<!doctype html><script type="module">
import { connect, RelayError } from "/relay.js";
const said = {};
try {
  const targets = await (await fetch("/targets")).json();
  const relay = await connect();
  const stream = await relay.open(targets.echo);
  const content = new Uint8Array(3000001).map((_, at) => at % 251);
  const writer = stream.writable.getWriter();
  const writing = writer.write(content).then(() => writer.close());
  let size = 0, wrong = 0;
  for await (const bytes of stream.readable) {
    for (let at = 0; at < bytes.length; at += 997) wrong += bytes[at] !== (size + at) % 251;
    size += bytes.length;
  }
  await writing;
  Object.assign(said, { size, wrong });
  said.refused = await relay.open(targets.refused).catch((error) => error instanceof RelayError && error.reason);
  // One that nobody reads stands still, and the others go on.
  const flood = await relay.open(targets.flood);
  const other = await relay.open(targets.echo);
  const words = other.writable.getWriter();
  const reader = other.readable.getReader();
  let came = 0;
  for (let turn = 0; turn < 50; turn++) {
    await words.write(new Uint8Array(20000));
    while (came < 20000 * (turn + 1)) came += (await reader.read()).value.length;
  }
  said.came = came;
  const flooded = flood.readable.getReader();
  let drunk = 0;
  while (drunk < 4000000) drunk += (await flooded.read()).value.length;
  said.drunk = drunk >= 4000000;
  flood.close();
  said.closed = await flooded.read().then(() => "read", (error) => error.reason);
  const reset = await relay.open(targets.resets);
  await reset.writable.getWriter().write(new Uint8Array(1));
  said.reset = await reset.readable.getReader().read().then(() => "read", (error) => error.reason);
  relay.close();
  said.ended = await reader.read().then(() => "read", (error) => error.reason);
  said.after = await relay.open(targets.echo).catch((error) => error.reason);
} catch (error) {
  said.error = `${error.name}: ${error.message}`;
}
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script>"""


@contextmanager
def showing(browser: str, url: str, profile: Path) -> Iterator[None]:
    """A browser that shows `url`."""
    command = [browser, "--headless=new", *OPTIONS, "--no-first-run", "--disable-background-networking"]
    command += [f"--user-data-dir={profile}", url]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        try:
            yield
        finally:
            running.send_signal(signal.SIGTERM)


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Break off at the first byte: before it, whoever connects might not be connected yet."""
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_a_page_reads_and_writes_streams_and_is_told_why_they_end(chromium: str, tmp_path: Path) -> None:
    async def work() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        said: asyncio.Future[dict[str, Any]] = loop.create_future()
        targets: dict[str, str] = {}

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            body, kind = b"", b"text/html"
            if scope["path"] == "/relay.js":
                body, kind = MODULE.read_bytes(), b"text/javascript"
            elif scope["path"] == "/targets":
                body = json.dumps(targets).encode()
            elif scope["path"] == "/said":
                content = json.loads((await receive())["body"])
                loop.call_soon_threadsafe(said.set_result, content)
            elif scope["path"] == "/":
                body = PAGE.encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": body})

        async with target(echo) as there, target(flood) as much, target(resets) as broken:
            targets |= {"echo": there, "flood": much, "resets": broken, "refused": "127.0.0.2:9"}
            relay = Relay(AllowedTargets([there, much, broken]), OriginPolicy())
            gateway = listen(app, Shard("gateway").start(), 0, relay=relay)
            try:
                with showing(chromium, gateway.url, tmp_path / "profile"):
                    return await asyncio.wait_for(said, SOON)
            finally:
                await asyncio.to_thread(gateway.close)

    assert asyncio.run(work()) == {
        "size": 3_000_001,
        "wrong": 0,
        "refused": "refused",
        "came": 1_000_000,
        "drunk": True,
        "closed": "done",
        "reset": "reset",
        "ended": "shutdown",
        "after": "shutdown",
    }
