"""Reads packages in mip's format from a local index, or from one by HTTP, with the packages that they need.

An index is a folder or a URL as micropython-lib's: `package/py/NAME/VERSION.json` and `file/ab/abcdef12`; compiled
packages are in `package/6`, by the version of their format. A package can also be a folder with `package.json`. Its
`urls` name files beside it, `hashes` files of the index by the beginning of their sha256, and `deps` other packages of
the index. Nothing else is contacted: a name that leads to another place is refused.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urljoin

from fastflight.cli.local_packages import MAX_FILE_BYTES, MAX_FILES, is_local, limited, read_local
from fastflight.errors import DataError, FileMissing, RequestError

SCHEMES = ("http://", "https://")
MAX_PACKAGES = 100
# The folder of an index with source code.
SOURCE = "py"
HTTP_SECONDS = 30.0
# The digits of a sha256 that name a file in an index; mip uses 8.
MIN_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, or a URL, below which files are read."""

    base: str

    def read(self, name: str) -> bytes:
        """Return the file `name` below the base. `FileMissing` if there is none; `RequestError` if it leads out."""
        inside = posixpath.normpath(name)
        if inside.startswith(("/", "../")) or inside == ".." or ":" in inside or "\\" in inside:
            hint = "Only files beside package.json, or in the index, are installed: download it, and name it there"
            raise RequestError("this package has a file from elsewhere", where=name, hint=hint)
        if self.base.startswith(SCHEMES):
            return self._download(inside)
        top = Path(self.base).resolve()
        path = (top / inside).resolve()
        if not path.is_relative_to(top):
            raise RequestError("this file is a link that leads out of its folder", where=name)
        if not path.is_file():
            raise FileMissing("there is no such file", where=str(path))
        with path.open("rb") as file:
            return limited(file.read(MAX_FILE_BYTES + 1), str(path))

    def _download(self, name: str) -> bytes:
        url = urljoin(self.base.rstrip("/") + "/", quote(name))
        try:
            with urllib.request.build_opener(_NoRedirects).open(url, timeout=HTTP_SECONDS) as answer:
                return limited(answer.read(MAX_FILE_BYTES + 1), url)
        except (URLError, OSError, ValueError) as error:
            raise FileMissing(f"cannot be downloaded ({error})", where=url, hint="Check --index") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: it would lead to a place that the user has not named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_packages(package: str, index: str | None, kind: str = SOURCE) -> dict[str, bytes]:
    """Return the files of a package and of those that it needs, by their paths in the library folder.

    `package` is `NAME` or `NAME@VERSION` of the index, a local folder, a module or a wheel. `kind` is the folder of the
    index: `SOURCE`, or the version of compiled modules.
    """
    if Path(package).name == "package.json":
        package = str(Path(package).parent)
    if not (Path(package) / "package.json").is_file() and is_local(package, index):
        return {_target(path): content for path, content in read_local(package).items()}
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    waiting = [package]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if len(seen) > MAX_PACKAGES:
            raise DataError(f"it needs more than {MAX_PACKAGES} packages", where=package)
        is_folder = current == package and (Path(current) / "package.json").is_file()
        beside = Place(current) if is_folder else None
        description = _description(current, beside, index, kind)
        for path, content in _files(description, beside, index, current):
            if files.setdefault(path, content) != content:
                raise DataError("two packages have different files of this name", where=path)
        if len(files) > MAX_FILES:
            raise DataError(f"it has more than {MAX_FILES} files", where=package)
        waiting += ["@".join(dependency) for dependency in _pairs(description, "deps", current)]
    return files


def _description(package: str, beside: Place | None, index: str | None, kind: str) -> Mapping[str, Any]:
    if beside is not None:
        content = beside.read("package.json")
    else:
        name, _, version = package.partition("@")
        content = _index(index, package).read(f"package/{kind}/{name}/{version or 'latest'}.json")
    try:
        description = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"its package.json is not JSON: {error}", where=package) from error
    if not isinstance(description, dict):
        raise DataError("its package.json is not an object", where=package)
    return description


def _files(
    description: Mapping[str, Any], beside: Place | None, index: str | None, package: str
) -> list[tuple[str, bytes]]:
    found = []
    for target, name in _pairs(description, "urls", package):
        found.append((_target(target), (beside or _index(index, package)).read(name)))
    for target, digits in _pairs(description, "hashes", package):
        content = _index(index, package).read(f"file/{digits[:2]}/{digits}")
        if len(digits) < MIN_HASH_DIGITS or not hashlib.sha256(content).hexdigest().startswith(digits):
            raise DataError("its content is not what the package says", where=f"{package}: {target}")
        found.append((_target(target), content))
    return found


def _target(path: str) -> str:
    """Return the path of a file in the library folder. `RequestError` if it leads out of it."""
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "../")) or normal in ("..", "."):
        raise RequestError("this package has a file that leads out of the library folder", where=path)
    return normal


def _pairs(description: Mapping[str, Any], key: str, package: str) -> list[tuple[str, str]]:
    pairs = description.get(key, [])
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair) for pair in pairs
    ):
        raise DataError(f"{key} in its package.json is not a list of pairs", where=package)
    return [(pair[0], pair[1]) for pair in pairs]


def _index(index: str | None, package: str) -> Place:
    if index is None:
        hint = "Name a folder or a URL with packages: --index. No index on the internet is used by default"
        raise RequestError("it is no folder with package.json, and there is no index", where=package, hint=hint)
    return Place(index)
