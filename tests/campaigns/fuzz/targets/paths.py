"""Paths of a board, and where they land on a computer: none leaves the tree that it belongs to."""

from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath

from fastflight.client.local_names import local_path
from fastflight.device.listing import normal_path
from fastflight.errors import DataError, RequestError
from fastflight.sources.tree_rows import relative
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

FOLDER = Path("nowhere") / "below"


def run(data: bytes) -> None:
    material = Material(data)
    windows = bool(material.byte() & 1)
    text = material.rest().decode("utf-8", "surrogateescape")
    try:
        normal = normal_path(text)
        assert normal.startswith("/") and not normal.startswith("//")
        assert not {".", ".."} & set(normal.split("/"))
        assert normal_path(normal) == normal
        assert normal == "/" or posixpath.join(posixpath.dirname(normal), posixpath.basename(normal)) == normal
    except RequestError as error:
        assert str(error)
    try:
        place = local_path(FOLDER, text, windows=windows)
        assert FOLDER in place.parents and ".." not in place.parts
        assert PurePosixPath(text).parts == place.parts[len(FOLDER.parts) :]
    except DataError as error:
        assert str(error)
    try:
        assert relative(text) == text
        full = posixpath.join("/data", text)
        assert posixpath.normpath(full) == full
    except DataError as error:
        assert str(error)


TARGET = Target(
    run,
    seeds=(
        b"\x00/data/log.csv",
        b"\x01lib/a/b.py",
        b"\x00//a/./b/../c/",
        b"\x00../../etc/passwd",
        b"\x01C:\\boot.ini",
        b"\x01aux.txt",
        "\x00/mäßig/\ud800".encode("utf-8", "surrogatepass"),
    ),
)
