"""What a collector remembers between its runs, in the file `collector.json` of its folder.

A collector is one folder on one computer, for one log of one device. Its id is in the names of the parts that it makes
on the board, so that two collectors of a board never take each other's parts for their own. The file is replaced as a
whole and made durable before the board is told anything that depends on it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastflight.client.validation import text, validating, whole
from fastflight.errors import DataError, ProtocolError, RequestError
from fastflight.files import replacement

FILE_NAME = "collector.json"
# Random bytes of an id: a board has a few collectors, and no two of them may have the same one.
ID_BYTES = 4
# Seconds for which a part of another collector must not have changed before it is adopted. A collector that lives has
# read its part and removed it by then, or goes on with the next run of `--every`.
ADOPT_SECONDS = 600.0


@dataclass(slots=True)
class Collector:
    """The id of a collector, its log, and the last `number` that it has given to a part.

    `others` are the parts of other collectors that the last run has seen: their sizes, and since when they have these.
    """

    id: str
    device: str
    path: str
    number: int = 0
    others: dict[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, device: str, path: str) -> Collector:
        """Return the collector of a folder, or a new one. Raises `RequestError` if the folder is for another log."""
        file = folder / FILE_NAME
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return cls(secrets.token_hex(ID_BYTES), device, path)
        try:
            with validating("it"):
                collector = _decoded(json.loads(content))
        except ProtocolError as error:
            hint = "Remove it. The parts that wait on the board are then collected ten minutes later"
            raise DataError("this file is damaged", where=str(file), hint=hint) from error
        if (collector.device, collector.path) != (device, path):
            raise RequestError(
                f"this folder has the parts of {collector.device}:{collector.path}",
                where=str(folder),
                hint="Collect into another folder",
            )
        return collector

    def save(self, folder: Path) -> None:
        """Store this durably."""
        with replacement(folder / FILE_NAME) as file:
            file.write(json.dumps(asdict(self)).encode())
        sync_folder(folder)

    def to_adopt(self, seen: Mapping[str, int], now: float) -> list[str]:
        """Note the parts of other collectors, by name with their sizes. Return those that nobody has touched for long.

        Their collector has gone: another server of a cluster has the board now, or its computer has been put away.
        """
        others = {}
        for name, size in seen.items():
            known, since = self.others.get(name, (-1, now))
            # A clock that was set back begins anew.
            others[name] = (size, since if known == size and since <= now else now)
        self.others = others
        return [name for name, (_, since) in others.items() if now - since >= ADOPT_SECONDS]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _decoded(fields: Mapping[str, Any]) -> Collector:
    id = text(fields["id"])
    if not re.fullmatch(rf"[0-9a-f]{{{2 * ID_BYTES}}}", id):
        raise ValueError("no id")
    others = {text(name): (whole(size), float(since)) for name, (size, since) in fields["others"].items()}
    return Collector(id, text(fields["device"]), text(fields["path"]), whole(fields["number"]), others)
