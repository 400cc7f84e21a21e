"""The backend in the server's own process: the catalog's sources and the table of actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastflight.concurrency import off_loop
from fastflight.service import Catalog, decode
from fastflight.service.actions import Actions
from fastflight.service.ledger import Ledger
from fastflight.service.requests import Request


class LocalBackend:
    """Serves from `catalog` and `actions`, under the admission of `ledger`."""

    def __init__(self, catalog: Catalog, actions: Actions, ledger: Ledger) -> None:
        self._catalog = catalog
        self._actions = actions
        self._ledger = ledger

    def decode(self, content: bytes) -> Request:
        return decode(content, self._catalog)

    async def act(self, name: str, body: bytes) -> list[Mapping[str, Any]]:
        return await off_loop(lambda: [json.loads(result) for result in self._actions.results(name, body)])
