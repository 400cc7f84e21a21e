"""Serves the gateway's WebSockets at `/ws/<kind>`, from the upgrade to the close code.

An upgrade with a wrong origin, path or ticket is refused before it is accepted, with the HTTP status and content of any
other error. Browsers do not show these to a page. So an error of the request itself is sent on the accepted WebSocket:
a message `{"error": ...}`, then the close code.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl

from fastflight.access.identity import Identity, unproven
from fastflight.errors import FastFlightError, RequestError, Stopped, UnknownName, nearest
from fastflight.gateway.asgi import CALLER, Receive, Scope, Send
from fastflight.gateway.errors import send_error
from fastflight.gateway.ws.channel import GOING_AWAY, NORMAL, WebSocketChannel
from fastflight.gateway.ws.tickets import Grant, Tickets
from fastflight.service.requests import SERVER_DRAINING

PREFIX = "/ws/"
# When the gateway closes, WebSockets get this long to end by themselves, as live sessions do when the server drains.
END_SECONDS = 1.0
# How often the access of the callers of open WebSockets is checked.
LOOK_SECONDS = 1.0
# Keys that are parsed in a query; three have a meaning.
MAX_KEYS = 16


@dataclass(frozen=True, slots=True)
class Opening:
    """A request to open a WebSocket. `rest` is the part of the path after the kind, `own_port` the gateway's port."""

    rest: str
    query: Mapping[str, str]
    grant: Grant | None
    caller: Identity
    own_port: int | None


# Serves one accepted WebSocket until it ends; returns why.
Talk: TypeAlias = Callable[[WebSocketChannel], Awaitable[str]]


class Sockets:
    """The ASGI application for WebSockets. `kinds` maps the name in the path to a function that accepts the upgrade."""

    def __init__(
        self,
        kinds: Mapping[str, Callable[[Opening], Talk]],
        tickets: Tickets,
        check: Callable[[Identity], None] = lambda caller: None,
    ) -> None:
        """`check` raises when a caller's access was revoked or changed. It is called once a second for all callers."""
        self._kinds = kinds
        self._tickets = tickets
        self._check = check
        self._open: dict[asyncio.Task[None], tuple[Identity, str]] = {}
        # The WebSockets that are being ended because `check` raised, and its errors.
        self._revocations: dict[asyncio.Task[None], Exception] = {}
        self._next_check: asyncio.TimerHandle | None = None
        self._ending = False
        self.revoked = 0

    def open(self) -> Mapping[str, int]:
        """Return how many of each kind are open."""
        return Counter(kind for _, kind in list(self._open.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if self._ending:
                raise _shutting_down()
            talk, kind, caller = self._accept(scope)
        except Exception as error:
            await send_error(send, error, "websocket.http")
            return
        self._open[task] = caller, kind
        if self._next_check is None:
            self._check_callers()
        try:
            await send({"type": "websocket.accept"})
            await self._carry_out(talk, WebSocketChannel(receive, send), task)
        finally:
            self._open.pop(task, None)
            self._revocations.pop(task, None)

    async def end(self, timeout: float) -> None:
        """Accept no more; give open ones `timeout` seconds, at most `END_SECONDS`, then close them with an error."""
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
            why = self._revocations.get(task) or (_shutting_down() if self._ending else None)
            if why is None or task.uncancel():
                raise
            await channel.fail(why)
        except Exception as error:
            await channel.fail(error)
        else:
            await channel.finish(GOING_AWAY if ended == SERVER_DRAINING else NORMAL, ended)

    def _check_callers(self) -> None:
        """End WebSockets whose caller `check` refuses; repeat while any is open."""
        refusals: dict[Identity, Exception] = {}
        for caller in {caller for caller, _ in self._open.values()}:
            try:
                self._check(caller)
            except FastFlightError as error:
                refusals[caller] = error
        for task, (caller, _) in self._open.items():
            if caller in refusals and task not in self._revocations:
                self._revocations[task] = refusals[caller]
                self.revoked += 1
                task.cancel()
        loop = asyncio.get_running_loop()
        self._next_check = loop.call_later(LOOK_SECONDS, self._check_callers) if self._open else None

    def _accept(self, scope: Scope) -> tuple[Talk, str, Identity]:
        """Return how to serve an upgrade, its kind, and its caller: that of its ticket, else that of its headers."""
        kind, _, rest = scope["path"].removeprefix(PREFIX).partition("/")
        if not scope["path"].startswith(PREFIX) or kind not in self._kinds:
            if scope.get(CALLER) is None:
                raise unproven()  # there are no tickets for unknown paths
            known = [PREFIX + name for name in self._kinds]
            raise UnknownName("no WebSocket there", where=scope["path"][:80], hint=nearest(scope["path"][:80], known))
        query = _query(scope["query_string"])
        ticket = query.pop("ticket", None)
        grant = None if ticket is None else self._tickets.redeem(ticket, kind)
        caller = scope.get(CALLER) if grant is None else grant.caller
        if caller is None:
            raise unproven()
        self._check(caller)
        own_port = (scope.get("server") or (None, None))[1]
        return self._kinds[kind](Opening(rest, query, grant, caller, own_port)), kind, caller


def _query(text: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(text.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=MAX_KEYS))
    except ValueError as error:
        raise RequestError("not a query that can be read", where="query") from error


def _shutting_down() -> Stopped:
    return Stopped("the server shuts down", hint="Ask again when it is back")
