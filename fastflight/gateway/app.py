"""The gateway's application: small answers in front, FastAPI behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from fastflight.errors import FastFlightError, RequestError, Stopped, UnknownName, nearest
from fastflight.gateway import openapi
from fastflight.gateway.asgi import CALLER
from fastflight.gateway.backend import Backend
from fastflight.gateway.callers import Caller, Callers
from fastflight.gateway.content.accepting import chosen
from fastflight.gateway.content.files import ROW_FORMATS, Files, keys_of
from fastflight.gateway.content.formats import encoder_of
from fastflight.gateway.content.streaming import Streamed, while_connected
from fastflight.gateway.content.uploads import Content
from fastflight.gateway.door import Door
from fastflight.gateway.errors import ErrorAnswers, HttpRefusal, error_answer
from fastflight.gateway.front import FrontApplication
from fastflight.gateway.metrics import EdgeMetrics, ServerMetrics
from fastflight.gateway.page.hearing import Hear
from fastflight.gateway.page.page import Page
from fastflight.gateway.page.viewers import Viewers
from fastflight.gateway.small import Made
from fastflight.gateway.ws.repl import Repls
from fastflight.gateway.ws.session import Sessions
from fastflight.gateway.ws.sockets import AcceptedUpgrade, Opening, Sockets
from fastflight.gateway.ws.tickets import LIFETIME_SECONDS, Grant, Tickets
from fastflight.service.requests import MAX_REQUEST_BYTES
from fastflight.service.wire import parse

STREAM_FORMATS = ("arrow", "jsonl", "csv", "lines")
EXEC_FORMATS = ("lines", "jsonl", "csv", "arrow")
# What a ticket may be for.
USES = ("session", "repl", "fleet", "relay")
SERVING, UNREACHABLE = "serving", "unreachable"


class AnyPath(PathConvertor):
    """The rest of a URL, also where it has a newline, which Starlette's own `path` ends at."""

    regex = r"[\s\S]*"


register_url_convertor("any_path", AnyPath())
FILE = "/devices/{device}/files/{path:any_path}"


def application(
    backend: Backend,
    registry: CollectorRegistry,
    door: Door | None = None,
    *,
    hear: Hear | None = None,
    plots: Path | None = None,
) -> FrontApplication:
    """What `listen` serves. `door`: whose requests are taken; `registry` gets the metrics.

    `hear` is how the live page hears devices, by their sessions if None; `plots` a folder of PNGs that it shows.
    """
    metrics = ServerMetrics(backend, registry)

    async def health(caller: Caller) -> Made:
        try:
            (state,) = await backend.act("health", b"", caller)
        except FastFlightError as error:
            raise Unreachable(error) from error
        return Made(json.dumps(state).encode())

    async def ready(caller: Caller) -> Made:
        made = await health(caller)
        status = json.loads(made.body)["status"]
        if status != SERVING:
            raise Stopped(f"the server is {status}", hint="Ask another one, or this one again later")
        return made

    async def devices(caller: Caller) -> Made:
        return Made(json.dumps({"devices": await backend.act("devices", b"", caller)}).encode())

    async def recordings(caller: Caller) -> Made:
        return Made(json.dumps({"recordings": await backend.act("recordings", b"", caller)}).encode())

    small = {
        "/health": health,
        "/health/ready": ready,
        "/devices": devices,
        "/recordings": recordings,
        "/metrics": metrics.make,
    }
    tickets = Tickets()
    viewers = Viewers(backend, hear)
    live = Sessions(backend)
    kinds: dict[str, Callable[[Opening], AcceptedUpgrade]] = {
        "session": live,
        "repl": Repls(backend),
        "fleet": viewers,
    }
    page = Page(behind(backend, tickets), plots)
    sockets = Sockets(kinds, tickets, backend.check)
    front = FrontApplication(
        door or Door(), small, page, sockets, Callers(backend), {"/health", "/health/ready", *page.paths}
    )
    registry.register(EdgeMetrics(front.answers, front.connections, sockets, live, viewers))
    return front


class Unreachable(Stopped):
    """The server elsewhere that a gateway stands in front of does not answer. `status` is for readers of `/health`."""

    def __init__(self, error: FastFlightError) -> None:
        super().__init__(error.what, where=error.where, hint="Look at the server behind this gateway, then ask again")
        self.status = UNREACHABLE


def behind(backend: Backend, tickets: Tickets) -> FastAPI:
    """The routes that are not kept."""
    app = FastAPI(
        title="fastflight",
        description=openapi.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _no_route},
        responses=openapi.DEFAULT,
    )
    app.add_middleware(ErrorAnswers)
    files = Files(backend)

    @app.post("/stream", openapi_extra=openapi.STREAM, response_class=Response, tags=["rows"])
    async def stream(request: Request) -> Response:
        """The rows of any request, as they come: Arrow IPC, or by `Accept` (or `?format=`) JSON lines or CSV."""
        format_ = chosen(request.query_params.get("format"), request.headers.get("accept", ""), STREAM_FORMATS)
        make = encoder_of(format_, request.query_params.get("formulas"))
        asked = backend.decode(await Content(request.receive).whole(MAX_REQUEST_BYTES))
        return Streamed(backend, asked, caller_of(request), make)

    @app.post("/tickets", openapi_extra=openapi.TICKET, status_code=201, tags=["rows"])
    async def ticket(request: Request) -> Response:
        """A ticket for a WebSocket: `/ws/session`, or with `?for=` one of `repl`, `fleet`, `relay`. For one use."""
        use = request.query_params.get("for", USES[0])
        if use not in USES:
            raise RequestError(f"{use[:80]!r} is not a use", where="for", hint=nearest(use, USES))
        content = await Content(request.receive).whole(MAX_REQUEST_BYTES)
        if use in ("fleet", "relay"):
            if content.strip() not in (b"", b"{}"):
                raise RequestError("a ticket for it is for no request", where="content", hint="Send none")
            asked = None
        else:
            asked = backend.decode(content)
        if asked is not None:
            backend.permit(asked, "exchange" if use == "repl" else "read", caller_of(request))
        issued = tickets.issue(Grant(use, asked, caller_of(request)))
        return JSONResponse({"ticket": issued, "expires_seconds": LIFETIME_SECONDS}, 201)

    @app.get("/devices/{device}", openapi_extra=openapi.DEVICE, tags=["devices"])
    async def device(request: Request, device: str) -> Response:
        """One device: name, url, whether its line is open, who has it."""
        known = {str(each["name"]): each for each in await backend.act("devices", b"", caller_of(request))}
        if device not in known:
            raise UnknownName("no such device", where=device, hint=nearest(device, known))
        return JSONResponse(known[device])

    @app.get("/devices/{device}/info", openapi_extra=openapi.INFO, tags=["devices"])
    async def info(request: Request, device: str) -> Response:
        """What the board says of itself."""
        async with while_connected(request.receive):
            (said,) = await backend.act("device.info", json.dumps({"device": device}).encode(), caller_of(request))
        return JSONResponse(said)

    @app.post("/devices/{device}/exec", openapi_extra=openapi.EXEC, response_class=Response, tags=["devices"])
    async def exec_(request: Request, device: str) -> Response:
        """The output of a piece of code, line by line as it runs."""
        format_ = chosen(request.query_params.get("format"), request.headers.get("accept", ""), EXEC_FORMATS)
        make = encoder_of(format_, request.query_params.get("formulas"))
        content = parse(await Content(request.receive).whole(MAX_REQUEST_BYTES), "content")
        asked = backend.decode(json.dumps({**content, "type": "device.exec", "device": device}).encode())
        return Streamed(backend, asked, caller_of(request), make)

    @app.post("/actions/{name}", openapi_extra=openapi.ACTION, tags=["actions"])
    async def action(request: Request, name: str) -> Response:
        """Carry an action out; its results."""
        body = await Content(request.receive).whole(MAX_REQUEST_BYTES)
        async with while_connected(request.receive):
            results = await backend.act(name, body, caller_of(request))
        return JSONResponse({"results": results})

    @app.get("/recordings/{name}", openapi_extra=openapi.RECORDING, response_class=Response, tags=["recordings"])
    async def recording(request: Request, name: str) -> Response:
        """The rows of a recording; the request's other keys as the query."""
        query = dict(request.query_params)
        format_ = chosen(query.pop("as", None), request.headers.get("accept", ""), ROW_FORMATS)
        make = encoder_of(format_, query.pop("formulas", None))
        asked = backend.decode(json.dumps({"type": "recording", "name": name, **keys_of(query)}).encode())
        return Streamed(backend, asked, caller_of(request), make)

    app.get(FILE, openapi_extra=openapi.GET_FILE, response_class=Response, tags=["files"])(files.get)
    app.head(FILE, openapi_extra=openapi.HEAD_FILE, response_class=Response, tags=["files"])(files.get)
    app.put(FILE, openapi_extra=openapi.PUT_FILE, status_code=201, tags=["files"])(files.put)
    app.delete(FILE, openapi_extra=openapi.DELETE_FILE, status_code=204, response_class=Response, tags=["files"])(
        files.delete
    )
    for route in [each for each in app.routes if isinstance(each, APIRoute) and each.methods == {"GET"}]:
        if route.path != FILE:  # whose HEAD is described
            app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
    described = app.openapi()
    described["paths"] = {**openapi.SMALL, **described["paths"]}
    return app


def caller_of(request: Request) -> Caller:
    """Who asks."""
    caller: Caller = request.scope[CALLER]
    return caller


async def _no_route(request: Request, error: Exception) -> Response:
    """What Starlette says of a path or method that is not there."""
    assert isinstance(error, HTTPException)
    path, headers = request.scope["path"], dict(error.headers or {})
    hint = "See /openapi.json for what is" if error.status_code == 404 else ""
    if error.status_code == 405:
        # Starlette names those of the first route that fits the path: each method has a route of its own here.
        matching = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
        headers["allow"] = hint = ", ".join(sorted({method for each in matching for method in each.methods}))
        hint = f"Allowed: {hint}"
    status, body = error_answer(HttpRefusal(error.status_code, str(error.detail).lower(), where=path, hint=hint))
    return Response(body, status, headers, "application/json")
