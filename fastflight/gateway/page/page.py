"""Serves the files of the live page.

The page is plain HTML, CSS and JavaScript modules, in `static/`. xterm.js comes from the installed package `nicegui`,
which is not imported. The page loads no file from other servers, and its Content-Security-Policy forbids that: only the
scripts listed here run, never text of a device.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response

from fastflight.concurrency import off_loop
from fastflight.errors import UnknownName
from fastflight.gateway.content.conditions import tagged

STATIC = Path(__file__).parent / "static"
# xterm.js writes <style> elements, so styles cannot be as strict as scripts.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"cache-control": "no-cache", "content-security-policy": POLICY}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Folders of nicegui that the page uses. They hold built modules, which import each other.
LIBRARIES = {"xterm": "elements/xterm/dist"}


def add_page(app: FastAPI) -> None:
    """Add the routes of the page to `app`."""
    known = files()

    @app.get("/", include_in_schema=False)
    @app.get("/page/{name:path}", include_in_schema=False)
    async def page(request: Request) -> Response:
        path = request.scope["path"]
        if path not in known:
            raise UnknownName("no such file of the page", where=path[:80])
        file = known[path]
        return tagged(request, await off_loop(_read, file), TYPES[file.suffix], HEADERS)


def files() -> Mapping[str, Path]:
    """Return the path and file of all that the page is made of. No other file can be requested."""
    found = {f"/page/{file.name}": file for file in STATIC.iterdir() if file.suffix in TYPES}
    for name, folder in LIBRARIES.items():
        found |= {f"/page/{name}/{file.name}": file for file in _installed(folder).iterdir() if file.suffix in TYPES}
    return {"/": STATIC / "index.html", **found}


@functools.cache
def _read(file: Path) -> bytes:
    """Return the content of one of the page's own files, which do not change.

    All files have 1 MB. They need no authentication, so many clients may request one and not read the answer: all these
    answers share one copy.
    """
    return file.read_bytes()


def _installed(folder: str) -> Path:
    """Return a folder of nicegui without importing it, which would take a second and start a framework."""
    spec = importlib.util.find_spec("nicegui")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("nicegui is not installed: the page's terminal comes with it")
    return Path(spec.submodule_search_locations[0]) / folder
