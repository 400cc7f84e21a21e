"""Leases on disk, damaged: nobody gets a device whose lease cannot be read, and a token never shrinks."""

from __future__ import annotations

import json

from fastflight.errors import BusyError, StorageError
from fastflight.log import FolderOwners
from tests.fuzz.folder import Folder
from tests.fuzz.material import Material
from tests.fuzz.saying import said
from tests.fuzz.target import Target

USUAL = (
    {"device": "demo", "owner": "server-1", "token": 5, "until": 2000.0},
    {"device": "demo", "owner": "server-1", "token": 5, "until": 0.0},
)
FOLDER = Folder()


def run(data: bytes) -> None:
    owners = FolderOwners(FOLDER.path, clock=lambda: 1000.0)
    content = said(Material(data), USUAL)
    (FOLDER.path / "demo.lease").write_bytes(content)
    try:
        lease = owners.acquire("demo", "server-2", 30.0)
    except (BusyError, StorageError) as error:
        assert str(error)
        return
    before = json.loads(content)
    assert before["until"] <= 1000.0 and lease.token == before["token"] + 1
    assert owners.holder("demo") == lease
    owners.release(owners.renew(lease, 60.0))
    assert owners.holder("demo") is None


TARGET = Target(
    run,
    modules=("fastflight.log.owners",),
    seeds=(b"\x00\x00", b"\x01\x00", b"\x01\x01\x0b\x01\x01", b"\x00\x01\x0a\x01\x0f", b"\xf6", b"\xff{}"),
    past=(b"\x01\x01\x0b\x01\xb7\x92A\x01",),
    running=FOLDER.kept,
)
