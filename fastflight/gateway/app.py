"""The gateway's application: small answers in front, FastAPI behind them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fastapi import FastAPI

from fastflight.gateway.backend import Backend
from fastflight.gateway.front import Door, Front, Made


def application(backend: Backend, origins: Iterable[str] = ()) -> Front:
    """What `listen` serves. `origins`: pages of other origins that may ask."""
    behind = FastAPI(title="fastflight", docs_url=None, redoc_url=None)

    async def health() -> Made:
        (state,) = await backend.act("health", b"")
        return Made(json.dumps(state).encode())

    async def devices() -> Made:
        return Made(json.dumps({"devices": await backend.act("devices", b"")}).encode())

    return Front(Door(origins), {"/health": health, "/devices": devices}, behind)
