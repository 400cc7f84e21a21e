"""The gateway's middleware, and small answers with an entity tag: asked as an ASGI server asks, without a network."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from fastflight.errors import BusyError
from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.content.conditions import tagged
from fastflight.gateway.errors import ErrorAnswers
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.origins import OriginPolicy

from .asgi_client import HERE, ask, scope


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    raise BusyError("in use", holder="a bridge", where="demo", hint="Wait")


async def small(scope: Scope, receive: Receive, send: Send) -> None:
    await tagged(Request(scope), b"{}")(scope, receive, send)


def test_a_client_that_has_it_is_not_sent_it_again() -> None:
    async def run() -> None:
        middleware = GatewayMiddleware(OriginPolicy(), small)
        etag = (await ask(middleware, scope())).headers[b"etag"]
        same = await ask(middleware, scope(headers=(HERE, (b"if-none-match", b'"other", W/' + etag))))
        other = await ask(middleware, scope(headers=(HERE, (b"if-none-match", b'"other"'))))
        assert (same.status, same.body, same.headers[b"etag"]) == (304, b"", etag)
        assert (other.status, other.body, other.headers[b"content-length"]) == (200, b"{}", b"2")

    asyncio.run(run())


def test_what_is_behind_fails_with_its_status_and_its_text() -> None:
    answered = asyncio.run(ask(GatewayMiddleware(OriginPolicy(), ErrorAnswers(behind)), scope("/other")))
    assert answered.status == 503
    assert answered.headers[b"retry-after"] == b"1"
    assert answered.json == {
        "code": "busy",
        "what": "in use",
        "where": "demo",
        "hint": "Wait",
        "holder": "a bridge",
        "text": "demo: in use. Wait",
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), 421),
        (((b"host", b"evil.example:8000"),), 421),
        (((b"host", b"127.0.0.1.evil.example"),), 421),
        (((b"host", b"169.254.1.1:8000"),), 421),
        (((b"host", b"\xff"),), 421),
        ((HERE, (b"origin", b"http://evil.example")), 403),
        ((HERE, (b"origin", b"null")), 403),
        ((HERE, (b"origin", b"http://127.0.0.1:9000")), 403),
        ((HERE, (b"sec-fetch-site", b"cross-site")), 403),
        ((HERE, (b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")), 403),
        ((HERE, (b"sec-fetch-site", b"same-site")), 403),
        ((HERE, (b"sec-fetch-site", b"same-site"), (b"sec-fetch-mode", b"no-cors")), 403),
        ((HERE, (b"sec-fetch-site", b"same-site"), (b"sec-fetch-mode", b"navigate")), 200),
        (((b"host", b"evil.example"), HERE), 421),
        ((HERE, HERE), 421),
        ((HERE, (b"origin", b"http://evil.example"), (b"origin", b"http://127.0.0.1:8000")), 403),
        ((HERE, (b"origin", b"http://127.0.0.1:8000"), (b"sec-fetch-site", b"same-origin")), 200),
        ((HERE, (b"origin", b"https://notebook.example")), 200),
        ((HERE, (b"sec-fetch-site", b"none")), 200),
        (((b"host", b"localhost"),), 200),
        (((b"host", b"LOCALHOST:8000"),), 200),
        (((b"host", b"[::1]:8000"),), 200),
        (((b"host", b"127.0.0.1"),), 200),
    ],
)
def test_a_page_from_elsewhere_gets_nothing(headers: tuple[tuple[bytes, bytes], ...], status: int) -> None:
    middleware = GatewayMiddleware(OriginPolicy(["https://notebook.example"]), small)
    assert asyncio.run(ask(middleware, scope(headers=headers))).status == status


async def either(scope: Scope, receive: Receive, send: Send) -> None:
    await (small if scope["path"] == "/small" else ErrorAnswers(behind))(scope, receive, send)


def test_pages_of_an_allowed_origin_may_read_and_are_told_so() -> None:
    there = b"https://notebook.example"
    middleware = GatewayMiddleware(OriginPolicy([there.decode()]), either)

    async def run() -> None:
        shared = await ask(middleware, scope(headers=(HERE, (b"origin", there))))
        assert shared.headers[b"access-control-allow-origin"] == there
        assert shared.headers[b"vary"] == b"origin"
        own = await ask(middleware, scope(headers=(HERE,)))
        assert (own.headers.get(b"access-control-allow-origin"), own.headers[b"vary"]) == (None, b"origin")
        failed = await ask(middleware, scope("/other", headers=(HERE, (b"origin", there))))
        assert (failed.status, failed.headers[b"access-control-allow-origin"]) == (503, there)
        asks = (HERE, (b"origin", there), (b"access-control-request-method", b"PUT"))
        before = await ask(middleware, scope("/devices/x/files/y", "OPTIONS", asks))
        assert (before.status, before.headers[b"access-control-allow-origin"]) == (204, there)
        assert b"authorization" in before.headers[b"access-control-allow-headers"]
        assert b"PUT" in before.headers[b"access-control-allow-methods"]
        stranger = (HERE, (b"origin", b"http://evil.example"), (b"access-control-request-method", b"PUT"))
        refused = await ask(middleware, scope("/small", "OPTIONS", stranger))
        assert (refused.status, refused.headers.get(b"access-control-allow-origin")) == (403, None)

    asyncio.run(run())


def test_without_allowed_origins_nothing_is_shared() -> None:
    middleware = GatewayMiddleware(OriginPolicy(), small)
    answered = asyncio.run(ask(middleware, scope(headers=(HERE, (b"origin", b"http://127.0.0.1:8000")))))
    assert answered.status == 200
    assert not any(name.startswith((b"access-control", b"vary")) for name in answered.headers)
