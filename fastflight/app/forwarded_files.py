"""Whole files for SQL, from the boards of all servers of a cluster. What is in the cache is not sent again."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from fastflight.app.remote_streams import vetted
from fastflight.app.routes import Routes
from fastflight.device import FileEntry, Inventory
from fastflight.errors import DeviceError, FileMissing
from fastflight.service.requests import DeviceFile
from fastflight.service.source import Lot
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.file_cache import CacheKey, Content
from fastflight.sources.spool import Spool


class ForwardedFiles(DeviceFiles):
    """As `local`, whose cache it shares, for the devices of all servers."""

    def __init__(self, routes: Routes, inventory: Inventory, local: DeviceFiles) -> None:
        super().__init__(inventory, local.cache, local.keys_of)
        self._routes = routes

    def fetch(self, request: DeviceFile) -> Generator[Lot, None, Content]:
        """As `DeviceFiles.fetch`, from the owner of the device."""
        connection = self._routes.route(request.device)
        if connection is None:
            return (yield from super().fetch(request))
        place = {"device": request.device, "path": request.path, "interrupt": request.interrupt}
        entry = FileEntry(**connection.act_once("file.stat", **place))
        try:
            hashed = connection.act_once("file.hash", **place)
        except FileMissing:
            raise
        except DeviceError:  # this board computes none
            hashed = {"algorithm": "", "digest": ""}
        key = CacheKey(request.device, entry, hashed["algorithm"], hashed["digest"])
        if (found := self.cache.find(key)) is not None:
            return found
        raw = DeviceFile(device=request.device, path=request.path, interrupt=request.interrupt, format="raw")
        with contextlib.ExitStack() as on_error:
            spool = on_error.enter_context(contextlib.closing(Spool()))
            with connection.stream(raw) as stream:
                for batch, _ in vetted(stream):
                    for data in batch.column("data"):
                        spool.feed(data.as_py())
                    yield []
            content = self.cache.store(key, spool)
            on_error.pop_all()
            return content
