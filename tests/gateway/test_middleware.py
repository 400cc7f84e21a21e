"""The gateway's middleware, and its shared answers: asked as an ASGI server asks, without a network."""

from __future__ import annotations

import asyncio

import pytest

from fastflight.access.identity import ANYBODY, Identity
from fastflight.errors import BusyError
from fastflight.gateway.asgi import Receive, Scope, Send
from fastflight.gateway.errors import ErrorAnswers
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.shared_answers import AnswerContent, SharedAnswer

from .asgi_client import HERE, Answered, ask, scope


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    raise BusyError("in use", holder="a bridge", where="demo", hint="Wait")


class CountedAnswers:
    """Makes another answer each time; waits for `gate`."""

    def __init__(self) -> None:
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self, caller: Identity = ANYBODY) -> AnswerContent:
        await self.gate.wait()
        self.made += 1
        return AnswerContent(b"%d" % self.made)


def test_each_answer_is_made_when_it_is_asked_for() -> None:
    async def run() -> None:
        small = SharedAnswer(CountedAnswers().make)
        first, second = Answered(), Answered()
        for answered in (first, second):
            await small.answer(ANYBODY, scope(), answered.take)
        assert (first.body, second.body) == (b"1", b"2")
        assert first.headers[b"content-length"] == b"1"
        assert first.headers[b"etag"] != second.headers[b"etag"]

    asyncio.run(run())


def test_those_who_come_together_share_one_making() -> None:
    async def run() -> None:
        counter = CountedAnswers()
        counter.gate.clear()
        small = SharedAnswer(counter.make)
        asking = [asyncio.ensure_future(small.answer(ANYBODY, scope(), Answered().take)) for _ in range(10)]
        await asyncio.sleep(0)
        asking[0].cancel()  # one that leaves ends nothing for the others
        counter.gate.set()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError, *[type(None)] * 9]
        assert counter.made == 1

    asyncio.run(run())


def test_a_failure_is_told_and_not_kept() -> None:
    async def run() -> None:
        failures = [BusyError("in use", where="demo")]

        async def make(caller: Identity) -> AnswerContent:
            if failures:
                raise failures.pop()
            return AnswerContent(b"{}")

        middleware = GatewayMiddleware(OriginPolicy(), {"/small": make}, behind)
        refused, well = await ask(middleware, scope()), await ask(middleware, scope())
        assert (refused.status, refused.json["text"]) == (503, "demo: in use")
        assert (well.status, well.body) == (200, b"{}")

    asyncio.run(run())


def test_a_client_that_has_it_is_not_sent_it_again() -> None:
    async def run() -> None:
        middleware = GatewayMiddleware(OriginPolicy(), {"/small": _empty}, behind)
        etag = (await ask(middleware, scope())).headers[b"etag"]
        same = await ask(middleware, scope(headers=(HERE, (b"if-none-match", b'"other", W/' + etag))))
        other = await ask(middleware, scope(headers=(HERE, (b"if-none-match", b'"other"'))))
        head = await ask(middleware, scope(method="HEAD"))
        assert (same.status, same.body, same.headers[b"etag"]) == (304, b"", etag)
        assert (other.status, other.body) == (200, b"{}")
        assert (head.status, head.body, head.headers[b"content-length"]) == (200, b"", b"2")

    asyncio.run(run())


def test_what_is_behind_fails_with_its_status_and_its_text() -> None:
    answered = asyncio.run(ask(GatewayMiddleware(OriginPolicy(), {}, ErrorAnswers(behind)), scope("/other")))
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
    middleware = GatewayMiddleware(OriginPolicy(["https://notebook.example"]), {"/small": _empty}, behind)
    assert asyncio.run(ask(middleware, scope(headers=headers))).status == status


async def _empty(caller: Identity) -> AnswerContent:
    return AnswerContent(b"{}")


def test_pages_of_an_allowed_origin_may_read_and_are_told_so() -> None:
    there = b"https://notebook.example"
    middleware = GatewayMiddleware(OriginPolicy([there.decode()]), {"/small": _empty}, ErrorAnswers(behind))

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
    middleware = GatewayMiddleware(OriginPolicy(), {"/small": _empty}, behind)
    answered = asyncio.run(ask(middleware, scope(headers=(HERE, (b"origin", b"http://127.0.0.1:8000")))))
    assert answered.status == 200
    assert not any(name.startswith((b"access-control", b"vary")) for name in answered.headers)
