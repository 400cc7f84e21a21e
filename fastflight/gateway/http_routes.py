"""Builds the gateway's application: the middleware, in front of the WebSockets and FastAPI's routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, generate_latest
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from fastflight.access.identity import Identity
from fastflight.concurrency import off_loop
from fastflight.errors import RequestError, Stopped, UnknownName, nearest
from fastflight.gateway import openapi
from fastflight.gateway.asgi import CALLER
from fastflight.gateway.backend import Backend
from fastflight.gateway.content.conditions import tagged
from fastflight.gateway.content.files import Files, keys_of
from fastflight.gateway.content.formats import ROW_FORMATS, choose_format, encoder_of
from fastflight.gateway.content.streaming import Streamed, while_connected
from fastflight.gateway.content.uploads import Content
from fastflight.gateway.errors import ErrorAnswers, HttpRefusal, error_answer
from fastflight.gateway.metrics import EdgeMetrics
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.origins import OriginPolicy
from fastflight.gateway.page.listeners import OpenListener
from fastflight.gateway.page.page import add_page
from fastflight.gateway.page.page import files as page_files
from fastflight.gateway.page.viewers import Viewers
from fastflight.gateway.relay.relay import Relay
from fastflight.gateway.ws.plotjuggler import PlotJugglers
from fastflight.gateway.ws.repl import Repls
from fastflight.gateway.ws.sockets import Opening, Sockets, Talk
from fastflight.gateway.ws.tickets import LIFETIME_SECONDS, Grant, Tickets
from fastflight.service.choices import MAX_REQUEST_BYTES
from fastflight.service.wire import parse

STREAM_FORMATS = ("arrow", "jsonl", "csv", "lines")
EXEC_FORMATS = ("lines", "jsonl", "csv", "arrow")
# What `POST /tickets` issues tickets for.
USES = ("repl", "fleet", "tcp", "plotjuggler")
SERVING = "serving"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class AnyPath(PathConvertor):
    """Matches the rest of a URL, newlines included; Starlette's own `path` stops at a newline."""

    regex = r"[\s\S]*"


register_url_convertor("any_path", AnyPath())
FILE = "/devices/{device}/files/{path:any_path}"


def application(
    backend: Backend,
    metrics: CollectorRegistry,
    policy: OriginPolicy | None = None,
    *,
    open_listener: OpenListener | None = None,
    relay: Relay | None = None,
) -> GatewayMiddleware:
    """Build the application that `listen` serves.

    `metrics` are those of the server; `/metrics` has those of the gateway as well. `policy` decides which hosts and
    origins are accepted. `open_listener` is how the live page reads the output of devices; None: through their
    sessions. `relay` serves TCP streams; None: there are none.
    """
    tickets = Tickets()
    viewers = Viewers(backend, open_listener)
    kinds: dict[str, Callable[[Opening], Talk]] = {
        "repl": Repls(backend),
        "fleet": viewers,
        "plotjuggler": PlotJugglers(backend),
    }
    if relay is not None:
        kinds["tcp"] = relay
    sockets = Sockets(kinds, tickets, backend.check)
    own_metrics = CollectorRegistry()
    middleware = GatewayMiddleware(
        policy or OriginPolicy(),
        routes(backend, tickets, (metrics, own_metrics)),
        sockets,
        backend.identify if backend.guarded else None,
        {"/health", "/health/ready", *page_files()},
    )
    own_metrics.register(EdgeMetrics(middleware.answers, middleware.connections, sockets, viewers))
    return middleware


def routes(backend: Backend, tickets: Tickets, metrics: Sequence[CollectorRegistry]) -> FastAPI:
    """Build the FastAPI application for all routes. `metrics` are those of `/metrics`."""
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

    async def results(request: Request, name: str) -> list[Mapping[str, Any]]:
        return await backend.act(name, b"", caller_of(request))

    @app.get("/health", openapi_extra=openapi.STATE, tags=["state"])
    async def health(request: Request) -> Response:
        """Return the state of the server: serving, draining or overloaded."""
        (state,) = await results(request, "health")
        return tagged(request, json.dumps(state).encode())

    @app.get("/health/ready", openapi_extra=openapi.STATE, tags=["state"])
    async def ready(request: Request) -> Response:
        """Return the state of the server if it takes requests."""
        (state,) = await results(request, "health")
        if state["status"] != SERVING:
            raise Stopped(f"the server is {state['status']}", hint="Ask another server, or try again later")
        return tagged(request, json.dumps(state).encode())

    @app.get("/cluster", openapi_extra=openapi.CLUSTER, tags=["state"])
    async def cluster(request: Request) -> Response:
        """Return the servers, the owners of devices, and the copies in NATS."""
        try:
            (status,) = await results(request, "cluster.status")
        except RequestError as error:  # only the server of a cluster has this action
            hint = "Start its servers with --cluster, as docs/cluster.md shows"
            raise UnknownName("this server is not in a cluster", where="/cluster", hint=hint) from error
        (storage,) = await results(request, "cluster.storage")
        return tagged(request, json.dumps({**status, **storage}).encode())

    @app.get("/metrics", openapi_extra=openapi.METRICS, response_class=Response, tags=["state"])
    async def metrics_text(request: Request) -> Response:
        """Return the metrics for Prometheus."""
        backend.permit_action("stats", caller_of(request))
        texts = [await off_loop(generate_latest, each) for each in metrics]
        return tagged(request, b"".join(texts), METRICS_TYPE)

    @app.get("/devices", openapi_extra=openapi.STATE, tags=["devices"])
    async def devices(request: Request) -> Response:
        """Return all devices that the caller may see."""
        return tagged(request, json.dumps({"devices": await results(request, "devices")}).encode())

    @app.get("/recordings", openapi_extra=openapi.STATE, tags=["recordings"])
    async def recordings(request: Request) -> Response:
        """Return all recordings that the caller may see."""
        return tagged(request, json.dumps({"recordings": await results(request, "recordings")}).encode())

    @app.post("/stream", openapi_extra=openapi.STREAM, response_class=Response, tags=["rows"])
    async def stream(request: Request) -> Response:
        """Stream the rows of any request: Arrow IPC, or by `Accept` or `?format=` JSON lines, CSV or lines of text."""
        format_ = choose_format(request.query_params.get("format"), request.headers.get("accept", ""), STREAM_FORMATS)
        make = encoder_of(format_, request.query_params.get("formulas"))
        decoded = backend.make_request(parse(await Content(request.receive).whole(MAX_REQUEST_BYTES), "request"))
        return Streamed(backend, decoded, caller_of(request), make)

    @app.post("/sql", openapi_extra=openapi.SQL, response_class=Response, tags=["rows"])
    async def sql(request: Request) -> Response:
        """Stream the result of an SQL query. The content is the query itself, or JSON with `query` and `parameters`."""
        format_ = choose_format(request.query_params.get("format"), request.headers.get("accept", ""), ROW_FORMATS)
        make = encoder_of(format_, request.query_params.get("formulas"))
        decoded = backend.make_request(sql_keys(await Content(request.receive).whole(MAX_REQUEST_BYTES)))
        return Streamed(backend, decoded, caller_of(request), make)

    @app.post("/tickets", openapi_extra=openapi.TICKET, status_code=201, tags=["rows"])
    async def ticket(request: Request) -> Response:
        """Issue a one-time ticket for the WebSocket that `?for=` names, by default `repl`."""
        use = request.query_params.get("for", USES[0])
        if use not in USES:
            raise RequestError(f"{use[:80]!r} is not a use", where="for", hint=nearest(use, USES))
        content = await Content(request.receive).whole(MAX_REQUEST_BYTES)
        decoded = None
        if use == "repl":
            decoded = backend.make_request(parse(content, "request"))
            backend.permit(decoded, "exchange", caller_of(request))
        elif content.strip() not in (b"", b"{}"):
            raise RequestError(f"a ticket for {use} has no request", where="content", hint="Send no content")
        issued = tickets.issue(Grant(use, decoded, caller_of(request)))
        return JSONResponse({"ticket": issued, "expires_seconds": LIFETIME_SECONDS}, 201)

    @app.get("/devices/{device}", openapi_extra=openapi.DEVICE, tags=["devices"])
    async def device(request: Request, device: str) -> Response:
        """Return the state of one device: its name, its URL, whether its line is open, and who holds it."""
        devices_by_name = {str(each["name"]): each for each in await results(request, "devices")}
        if device not in devices_by_name:
            raise UnknownName("no such device", where=device, hint=nearest(device, devices_by_name))
        return JSONResponse(devices_by_name[device])

    @app.get("/devices/{device}/info", openapi_extra=openapi.INFO, tags=["devices"])
    async def info(request: Request, device: str) -> Response:
        """Return what the board reports about itself."""
        async with while_connected(request.receive):
            (report,) = await backend.act("device.info", json.dumps({"device": device}).encode(), caller_of(request))
        return JSONResponse(report)

    @app.post("/devices/{device}/exec", openapi_extra=openapi.EXEC, response_class=Response, tags=["devices"])
    async def exec_(request: Request, device: str) -> Response:
        """Run code on the device and stream its output, line by line as it runs."""
        format_ = choose_format(request.query_params.get("format"), request.headers.get("accept", ""), EXEC_FORMATS)
        make = encoder_of(format_, request.query_params.get("formulas"))
        content = parse(await Content(request.receive).whole(MAX_REQUEST_BYTES), "content")
        decoded = backend.make_request({**content, "type": "device.exec", "device": device})
        return Streamed(backend, decoded, caller_of(request), make)

    @app.get("/devices/{device}/rows", openapi_extra=openapi.LIVE_ROWS, response_class=Response, tags=["devices"])
    async def live_rows(request: Request, device: str) -> Response:
        """Return the typed rows of a device that are in memory. The query holds the session's other keys."""
        query = dict(request.query_params)
        if (seconds := query.pop("seconds", None)) is not None:
            query["since_seconds"] = seconds
        return as_rows(request, query, {"type": "device.session", "device": device, "as": "rows", "follow": False})

    @app.post("/actions/{name}", openapi_extra=openapi.ACTION, tags=["actions"])
    async def action(request: Request, name: str) -> Response:
        """Carry out an action and return its results."""
        body = await Content(request.receive).whole(MAX_REQUEST_BYTES)
        async with while_connected(request.receive):
            results = await backend.act(name, body, caller_of(request))
        return JSONResponse({"results": results})

    @app.get("/recordings/{name}", openapi_extra=openapi.RECORDING, response_class=Response, tags=["recordings"])
    async def recording(request: Request, name: str) -> Response:
        """Stream the rows of a recording. The query holds the request's other keys."""
        return as_rows(request, dict(request.query_params), {"type": "recording", "name": name})

    @app.get("/recordings/{name}/rows", openapi_extra=openapi.RECORDING, response_class=Response, tags=["recordings"])
    async def recorded_rows(request: Request, name: str) -> Response:
        """Stream the typed rows that the device has printed. The query holds the request's other keys."""
        return as_rows(request, dict(request.query_params), {"type": "recording", "name": name, "as": "rows"})

    def as_rows(request: Request, query: dict[str, str], keys: dict[str, Any]) -> Response:
        """Answer with the rows of the request that has `keys`, and those of the query."""
        format_ = choose_format(query.pop("as", None), request.headers.get("accept", ""), ROW_FORMATS)
        make = encoder_of(format_, query.pop("formulas", None))
        decoded = backend.make_request({**keys, **keys_of(query)}, strict=False)
        return Streamed(backend, decoded, caller_of(request), make)

    app.get(FILE, openapi_extra=openapi.GET_FILE, response_class=Response, tags=["files"])(files.get)
    app.head(FILE, openapi_extra=openapi.HEAD_FILE, response_class=Response, tags=["files"])(files.get)
    app.put(FILE, openapi_extra=openapi.PUT_FILE, status_code=201, tags=["files"])(files.put)
    app.delete(FILE, openapi_extra=openapi.DELETE_FILE, status_code=204, response_class=Response, tags=["files"])(
        files.delete
    )
    add_page(app)
    for route in [each for each in app.routes if isinstance(each, APIRoute) and each.methods == {"GET"}]:
        if route.path != FILE:  # it has a HEAD route of its own
            app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
    return app


def sql_keys(content: bytes) -> dict[str, Any]:
    """Return the keys of a `sql` request. No query begins with a brace, so content that does is JSON."""
    if content.lstrip().startswith(b"{"):
        return {**parse(content, "content"), "type": "sql"}
    try:
        return {"type": "sql", "query": content.decode()}
    except UnicodeDecodeError:
        raise RequestError("not UTF-8", where="content", hint="Send the query, or JSON with a query") from None


def caller_of(request: Request) -> Identity:
    """Return the caller that the middleware has put into the request's scope."""
    caller: Identity = request.scope[CALLER]
    return caller


async def _no_route(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method does not exist."""
    assert isinstance(error, HTTPException)
    path, headers = request.scope["path"], dict(error.headers or {})
    hint = "See /openapi.json for all paths" if error.status_code == 404 else ""
    if error.status_code == 405:
        # Starlette names only the methods of the first matching route; here each method has its own route.
        matching = (each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE)
        headers["allow"] = hint = ", ".join(sorted({method for each in matching for method in each.methods}))
        hint = f"Allowed: {hint}"
    status, body = error_answer(HttpRefusal(error.status_code, str(error.detail).lower(), where=path, hint=hint))
    return Response(body, status, headers, "application/json")
