"""Reads a package that is on this computer: a module, a folder, or a wheel as PyPI has them.

Only Python source and `.mpy` files are taken. Nothing of a package runs on this computer.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from fastflight.client.folder import scan
from fastflight.errors import DataError, RequestError

T = TypeVar("T")

# Far more than a board can hold.
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 1000
MODULES = (".py", ".mpy")
WHEEL = ".whl"
# Folders of a wheel that hold no modules: its description, and scripts for this computer.
NOT_MODULES = (".dist-info", ".data")
IGNORED = ("__pycache__", ".*")


def is_local(package: str, index: str | None) -> bool:
    """Return whether this names something on this computer, and not a package of the index."""
    if package.endswith((*MODULES, WHEEL)) or "/" in package or os.sep in package:
        return True
    return index is None and Path(package).is_dir()


def read_local(package: str) -> dict[str, bytes]:
    """Return the modules of a file or folder, by their paths in the library folder.

    A folder with `__init__.py` or `__init__.mpy` is a package: its own name is part of the paths.
    """
    path = Path(package)
    if path.is_file() and path.suffix == WHEEL:
        files = dict(_of_wheel(path))
    elif path.is_file() and path.suffix in MODULES:
        files = {path.name: limited(path.read_bytes(), package)}
    elif path.is_dir():
        files = dict(_of_folder(path))
    else:
        hint = "Name a folder, a file that ends in .py, .mpy or .whl, or a package of --index"
        raise RequestError("there is no such package on this computer", where=package, hint=hint)
    if not files:
        raise DataError("it has no modules (.py, .mpy)", where=package)
    return files


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    is_package = any((folder / f"__init__{ending}").is_file() for ending in MODULES)
    before = f"{folder.resolve().name}/" if is_package else ""
    entries = [entry for entry in scan(folder, IGNORED).files if entry.path.endswith(MODULES)]
    for entry in _counted(entries, str(folder)):
        yield before + entry.path, limited(entry.local.read_bytes(), str(entry.local))


def _of_wheel(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(path) as wheel:
            found = [
                each
                for each in wheel.infolist()
                if each.filename.endswith(MODULES) and not each.filename.partition("/")[0].endswith(NOT_MODULES)
            ]
            for each in _counted(found, str(path)):
                with wheel.open(each) as file:
                    yield each.filename, limited(file.read(MAX_FILE_BYTES + 1), f"{path}: {each.filename}")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(f"it is no wheel that can be read: {error}", where=str(path)) from error


def _counted(found: Sequence[T], where: str) -> Sequence[T]:
    if len(found) > MAX_FILES:
        raise DataError(f"it has more than {MAX_FILES} files", where=where)
    return found


def limited(content: bytes, where: str) -> bytes:
    """Return the content of a file. `DataError` if it is too large."""
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"a file may have {MAX_FILE_BYTES:,} bytes", where=where)
    return content
