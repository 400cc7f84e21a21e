"""The gateway's WebSockets: `/ws/<kind>` and what follows it. From the upgrade to the close code.

What is wrong with the upgrade itself (its page, its path, its ticket) is refused before it is accepted, with the status
and content of any other answer. A browser does not show these to a page; so what is wrong with the request is told on
the accepted WebSocket: a message `{"error": ...}`, then the close code.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import parse_qsl

from fastflight.access.identity import unproven
from fastflight.errors import FastFlightError, RequestError, Stopped, UnknownName, nearest
from fastflight.gateway.asgi import CALLER, Receive, Scope, Send
from fastflight.gateway.callers import Caller
from fastflight.gateway.errors import send_error
from fastflight.gateway.ws.channel import GOING_AWAY, NORMAL, WebSocketChannel
from fastflight.gateway.ws.tickets import Grant, Tickets
from fastflight.sources.following import DRAINING

PREFIX = "/ws/"
# Open ones get this to come to their end by themselves when the gateway is closed; live sessions do, at a drain.
END_SECONDS = 1.0
# How often it is looked whether those that are open still may be.
LOOK_SECONDS = 1.0
# Keys of a query, of which there are three.
MAX_KEYS = 16


@dataclass(frozen=True, slots=True)
class Opening:
    """What a client opens a WebSocket with. `rest` is what follows the kind in the path."""

    rest: str
    query: Mapping[str, str]
    subprotocols: tuple[str, ...]
    grant: Grant | None
    caller: Caller


# What happens on a WebSocket; returns why it ends.
Talk: TypeAlias = Callable[[WebSocketChannel], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class AcceptedUpgrade:
    """An upgrade that is accepted."""

    talk: Talk
    subprotocol: str | None = None
    kind: str = ""


class Sockets:
    """The ASGI application behind the door. `kinds`: the name in the path, and what looks at the upgrade."""

    def __init__(
        self,
        kinds: Mapping[str, Callable[[Opening], AcceptedUpgrade]],
        tickets: Tickets,
        check: Callable[[Caller], None] = lambda caller: None,
    ) -> None:
        """`check` raises once what a caller had proven holds no more; it is asked of all open ones."""
        self._kinds = kinds
        self._tickets = tickets
        self._check = check
        self._open: dict[asyncio.Task[None], tuple[Caller, str]] = {}
        # Those whose proof holds no more, and why.
        self._put_out: dict[asyncio.Task[None], Exception] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._ending = False
        self.put_out = 0

    def open(self) -> Mapping[str, int]:
        """How many of each kind are open."""
        return Counter(kind for _, kind in list(self._open.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._ending:
                raise _shutting_down()
            opened, caller = self._opened(scope)
        except Exception as error:
            await send_error(send, error, "websocket.http")
            return
        self._open[task] = caller, opened.kind
        if self._looking is None:
            self._look()
        try:
            await send({"type": "websocket.accept", "subprotocol": opened.subprotocol})
            await self._carry_out(opened.talk, WebSocketChannel(receive, send), task)
        finally:
            self._open.pop(task, None)
            self._put_out.pop(task, None)

    def admit(self, query: bytes, use: str, shown: Caller | None) -> Caller:
        """Who opens a WebSocket that is none of these, for `use`: whose ticket is in `query`, or who has `shown` it."""
        return self._admitted(_query(query), use, shown)[1]

    def _admitted(self, query: dict[str, str], use: str, shown: Caller | None) -> tuple[Grant | None, Caller]:
        """Take the ticket out of `query`, and use it up."""
        ticket = query.pop("ticket", None)
        grant = None if ticket is None else self._tickets.redeem(ticket, use)
        caller = shown if grant is None else grant.caller
        if caller is None:
            raise unproven()
        self._check(caller)
        return grant, caller

    async def end(self, timeout: float) -> None:
        """Accept no more; open ones have `timeout` seconds, at most `END_SECONDS`, and are then told that they end."""
        self._ending = True
        if self._open:
            await asyncio.wait(self._open, timeout=min(timeout, END_SECONDS))
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=END_SECONDS)

    async def _carry_out(self, talk: Talk, channel: WebSocketChannel, task: asyncio.Task[None]) -> None:
        try:
            ended = await talk(channel)
        except asyncio.CancelledError:
            why = self._put_out.get(task) or (_shutting_down() if self._ending else None)
            if why is None or task.uncancel():
                raise
            await channel.fail(why)
        except Exception as error:
            await channel.fail(error)
        else:
            await channel.finish(GOING_AWAY if ended == DRAINING else NORMAL, ended)

    def _look(self) -> None:
        """End those whose proof holds no more; look again as long as any is open."""
        found: dict[Caller, Exception] = {}
        for caller in {caller for caller, _ in self._open.values()}:
            try:
                self._check(caller)
            except FastFlightError as error:
                found[caller] = error
        for task, (caller, _) in self._open.items():
            if caller in found and task not in self._put_out:
                self._put_out[task] = found[caller]
                self.put_out += 1
                task.cancel()
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_SECONDS, self._look) if self._open else None

    def _opened(self, scope: Scope) -> tuple[AcceptedUpgrade, Caller]:
        kind, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
        if not scope["path"].startswith(PREFIX) or kind not in self._kinds:
            if scope.get(CALLER) is None:
                raise unproven()  # no ticket is for what is not there
            known = [PREFIX + name for name in self._kinds]
            raise UnknownName("no WebSocket there", where=scope["path"][:80], hint=nearest(scope["path"][:80], known))
        query = _query(scope["query_string"])
        grant, caller = self._admitted(query, kind, scope.get(CALLER))
        opened = self._kinds[kind](Opening(rest, query, tuple(scope.get("subprotocols", ())), grant, caller))
        return replace(opened, kind=kind), caller


def _query(text: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(text.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=MAX_KEYS))
    except ValueError as error:
        raise RequestError("not a query that can be read", where="query") from error


def _shutting_down() -> Stopped:
    return Stopped("the server shuts down", hint="Ask again when it is back")
