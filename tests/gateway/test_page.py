"""The page's files: what is served, with which headers, and what is not."""

from __future__ import annotations

import asyncio
from typing import cast

from fastflight.gateway import Backend, OriginPolicy
from fastflight.gateway.http_routes import routes
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.page.page import LIBRARIES, STATIC, files
from fastflight.gateway.ws.tickets import Tickets

from .asgi_client import HERE, Answered, ask, scope

APP = GatewayMiddleware(OriginPolicy(), routes(cast(Backend, None), Tickets(), ()))


def get(path: str, *headers: tuple[bytes, bytes], method: str = "GET") -> Answered:
    return asyncio.run(ask(APP, scope(path, method, (HERE, *headers))))


def test_the_page_lets_a_browser_run_its_own_scripts_only() -> None:
    page = get("/")
    assert (page.status, page.headers[b"content-type"]) == (200, b"text/html; charset=utf-8")
    policy = page.headers[b"content-security-policy"].decode().split("; ")
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    text = page.body.decode()
    assert "<script>" not in text and "style=" not in text and "//" not in text.replace("<!doctype", "")


def test_every_file_of_the_libraries_is_where_the_installed_version_has_it() -> None:
    known = files()
    for name in LIBRARIES:
        assert known[f"/page/{name}/index.js"].stat().st_size > 0
    assert known["/page/xterm/xterm.css"].stat().st_size > 0
    for source in STATIC.glob("*.js"):
        for line in source.read_text().splitlines():
            if line.startswith("import ") and '"/page/' in line:
                assert line.split('"')[1] in known, line


def test_a_file_that_a_browser_has_is_not_sent_again() -> None:
    first = get("/page/page.js")
    again = get("/page/page.js", (b"if-none-match", first.headers[b"etag"]))
    assert (again.status, again.body) == (304, b"")
    refused = get("/page/page.js", method="PUT")
    assert (refused.status, refused.headers[b"allow"]) == (405, b"GET, HEAD")


def test_strangers_who_ask_for_the_page_and_do_not_read_share_one_of_each_file() -> None:
    assert get("/page/xterm/index.js").parts[0] is get("/page/xterm/index.js").parts[0]


def test_nothing_else_is_served() -> None:
    for path in ("/page/", "/page/../page.py", "/page/page.py", "/page/%2e%2e/page.py", "/static/page.js"):
        assert get(path).status == 404
