"""Web pages that have a browser connect to a bridge's ports: none of what it sends reaches the device."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright
from structlog.testing import capture_logs

from fastflight.app.compose import open_server
from fastflight.bridge import connection as connections
from fastflight.bridge.opening import METHODS, OPENINGS, browser_protocol
from fastflight.client import FastFlightClient
from tests.bridge.bridge_client import KINDS, bridging, connect, writing
from tests.support.browser import OPTIONS
from tests.support.servers import config

POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:2218\r\nContent-Length: 9\r\n\r\n\x03import os"
HINT = b"fastflight: this port is for serial tools, and "
PATIENCE_MS = 20_000


def client_hello() -> bytes:
    """What a TLS client sends first."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a.example").do_handshake()
    return outgoing.read()


FOREIGN = {
    **{method.decode(): method + b" / HTTP/1.1\r\n\r\n" for method in METHODS},
    "POST with a body": POST,
    "TLS": client_hello(),
    "TURN over TCP": b"\x00\x03\x00\x08\x21\x12\xa4\x42" + b"i" * 12 + b"\x00\x19\x00\x04\x11\x00\x00\x00",
    "ICE over TCP": b"\x00\x1c\x00\x01\x00\x08\x21\x12\xa4\x42" + b"i" * 12 + b"\x00\x06\x00\x04name",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FOREIGN)
async def test_a_browser_is_refused_and_the_device_hears_nothing(name: str, kind: str) -> None:
    async with bridging() as (line, bridge):
        with capture_logs() as logged:
            page = await connect(bridge, kind)
            page.writer.write(FOREIGN[name])
            assert HINT in await page.reader.read()
            await page.close()
        assert line.written == b""
        assert bridge.refused.total() == 1
        (entry,) = [entry for entry in logged if entry["event"] == "browser refused"]
        assert entry["client"] == page.name
        assert "HTTP/1.1" not in str(logged)
        tool = await writing(bridge, kind)
        await tool.close()


@pytest.mark.parametrize("name", ["GET", "POST with a body", "TLS", "ICE over TCP"])
async def test_an_opening_in_pieces_is_refused_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every place, and byte by byte, however slowly this computer brings them."""
    monkeypatch.setattr(connections, "HOLD_SECONDS", 60.0)
    data = FOREIGN[name][:40]
    needed = max(len(opening) for openings in OPENINGS.values() for opening in openings)

    async with bridging() as (line, bridge):
        pieces = [[data[:at], data[at:]] for at in range(1, needed + 1)] + [[bytes([byte]) for byte in data]]
        for each in pieces:
            page = await connect(bridge, "socket")
            for piece in each:
                page.writer.write(piece)
                await asyncio.sleep(0.001)
            assert HINT in await page.reader.read()
            await page.close()
        assert line.written == b""
        assert bridge.refused.total() == len(pieces)


TOOLS = {
    "mpremote": b"\r\x03\x03\r\x01",
    "esptool": b"\xc0\x00\x08\x24\x00",
    "telnet": b"\xff\xfb\x2c",
    "a line of Python": b"print(1)\r",
    "a name that begins like a method": b"GETTER = 1\r",
    "a method in small letters": b"get / HTTP/1.1\r",
    "zeros": b"\x00" * 20,
    "raw paste": b"\x05A\x01",
    "Ctrl-V and Ctrl-C": b"\x16\x03\x03\x03\x03\x03",
}


@pytest.mark.parametrize("name", TOOLS)
async def test_what_tools_begin_with_is_not_touched(name: str) -> None:
    data = TOOLS[name]

    async with bridging() as (line, bridge):
        for pieces in ([data], [bytes([byte]) for byte in data]):
            tool = await connect(bridge, "socket")
            for piece in pieces:
                tool.writer.write(piece)
                await asyncio.sleep(0.001)
            assert await tool.exactly(len(data)) == data
            await tool.close()
        assert bridge.refused.total() == 0


def test_most_first_bytes_are_not_held_at_all() -> None:
    held = bytes(byte for byte in range(256) if browser_protocol(bytes([byte])) is None)
    assert held == b"\x00\x16CDGHOPT"


async def test_a_person_who_types_a_method_is_let_through() -> None:
    """A key comes later than `HOLD_SECONDS` after the one before: what was held goes to the device, and is echoed."""

    async with bridging() as (line, bridge):
        person = await connect(bridge, "socket")
        for key in (b"G", b"E", b"T", b" ", b"/"):
            person.writer.write(key)
            assert await person.exactly(1) == key
        assert bridge.refused.total() == 0
        await person.close()


async def test_a_line_that_is_a_method_so_far_goes_to_the_device_when_its_sender_leaves() -> None:
    async with bridging() as (line, bridge):
        tool = await connect(bridge, "socket")
        tool.writer.write(b"POST")
        tool.writer.write_eof()
        await tool.reader.read()
        await tool.close()
        assert line.written == b"POST"


async def test_a_method_later_on_is_text() -> None:
    async with bridging() as (line, bridge):
        tool = await writing(bridge, "socket")
        await tool.send(POST)
        assert await tool.exactly(len(POST)) == POST
        await tool.close()


async def test_a_browser_takes_nothing_over() -> None:
    async with bridging(takeover=True) as (line, bridge):
        tool = await writing(bridge, "socket")
        page = await connect(bridge, "rfc2217")
        page.writer.write(POST)
        assert HINT in await page.reader.read()
        await page.close()
        await tool.send(b"still here")
        assert await tool.exactly(10) == b"still here"
        await tool.close()


@contextmanager
def evil_site() -> Iterator[str]:
    """A page of somebody else, at an origin of its own."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>evil</title>")

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


EVERYTHING = """async ports => {
    const body = "\\r\\n\\x03\\r\\nimport os\\r\\nos.remove('/main.py')\\r\\n";
    for (const port of ports)
        for (const [scheme, method] of [["http", "POST"], ["http", "GET"], ["http", "PUT"], ["https", "POST"]])
            await fetch(`${scheme}://127.0.0.1:${port}/`,
                {method, mode: method == "PUT" ? "cors" : "no-cors", body: method == "GET" ? undefined : body})
                .catch(() => null);
    for (const port of ports)
        await new Promise(done => {
            const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
            socket.onclose = done;
        });
    const peer = new RTCPeerConnection({iceServers: ports.map(port =>
        ({urls: `turn:127.0.0.1:${port}?transport=tcp`, username: "a", credential: "b"}))});
    peer.createDataChannel("x");
    await new Promise(done => {
        peer.onicegatheringstatechange = () => peer.iceGatheringState == "complete" && done();
        peer.createOffer().then(offer => peer.setLocalDescription(offer));
    });
}"""


def test_a_page_in_chromium_reaches_no_board(chromium: str) -> None:
    settings = config({"demo": {"url": "sim:?telemetry=0", "bridge": {"rfc2217": 0, "socket": 0}}})
    with open_server(settings) as running, evil_site() as site, sync_playwright() as driver:
        ports = [running.bridges["demo"].rfc2217, running.bridges["demo"].socket]
        browser = driver.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(site)
        page.evaluate(EVERYTHING, ports)
        browser.close()
        with FastFlightClient(running.location) as client:
            assert "main.py" in [entry.path.lstrip("/") for entry in client.ls("demo")]
            figures = client.stats()["figures"]
            refused = {labels["protocol"]: count for labels, count in figures["fastflight_bridge_browsers_total"]}
            assert refused["HTTP"] >= 8
            assert refused["TLS"] >= 2
            assert refused["STUN"] >= 1
