"""The files of a server's device, without Arrow: for copies from a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from fastflight.client import answers
from fastflight.client.answers import Digest, Entry
from fastflight.client.device_files import TreePiece
from fastflight.client.landing import RemoteEntry, remote_entries
from fastflight.client.light.answer import LightRows
from fastflight.client.meaning import Note, content, digests_in, text, understood, whole

if TYPE_CHECKING:
    from fastflight.client.light.client import LightClient

T = TypeVar("T")

Row = dict[str, Any]


class LightDownload(Generic[T]):
    """A `Download` of the rows of an answer, as `values` takes them from a batch and its note."""

    def __init__(self, rows: LightRows, values: Callable[[list[Row], Note], Iterator[T]]) -> None:
        self._rows = rows
        self._values = values
        self.cancel: Callable[[], None] = rows.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def __iter__(self) -> Iterator[T]:
        for rows, note in self._rows:
            yield from self._values(rows, note)

    @property
    def sha256(self) -> str:
        return str(self._rows.summary.get("sha256"))


class LightFiles:
    """The part of `DeviceFiles` that reads, for the device `device`. `keys` are keys of all requests."""

    def __init__(self, client: LightClient, device: str, keys: Mapping[str, Any]) -> None:
        self._client = client
        self.device = device
        self._keys = keys
        self._interrupt = bool(keys.get("interrupt"))

    def stat(self, path: str) -> Entry:
        return self._client.stat(self.device, path, interrupt=self._interrupt)

    def hash(self, path: str, limit: int | None = None) -> Digest:
        return self._client.hash(self.device, path, limit=limit, interrupt=self._interrupt)

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        arguments = {"device": self.device, "path": folder, "interrupt": self._interrupt}
        return remote_entries(self._client.act("file.hash", **arguments, recursive=True))

    def list_tree(self, folder: str) -> LightDownload[Entry]:
        keys = {name: value for name, value in self._keys.items() if name in ("interrupt", "mode")}
        return self._download("device.listing", folder, _entries, recursive=True, **keys)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> LightDownload[bytes]:
        keys = {**self._keys, "format": "raw", "offset": offset, "limit": limit}
        return self._download("device.file", path, _bytes, **keys)

    def read_tree(self, folder: str, paths: Sequence[str]) -> LightDownload[tuple[Sequence[str], Sequence[TreePiece]]]:
        return self._download("device.tree", folder, _tree_pieces, **self._keys, files=list(paths))

    def _download(
        self, type: str, path: str, values: Callable[[list[Row], Note], Iterator[T]], **keys: Any
    ) -> LightDownload[T]:
        return LightDownload(self._client.ask(type, device=self.device, path=path, **keys), values)


def _entries(rows: list[Row], _: Note) -> Iterator[Entry]:
    return iter(answers.entries_of_rows(rows))


def _bytes(rows: list[Row], _: Note) -> Iterator[bytes]:
    with understood("a piece of a file"):
        return iter([content(row["data"]) for row in rows])


def _tree_pieces(rows: list[Row], note: Note) -> Iterator[tuple[Sequence[str], Sequence[TreePiece]]]:
    with understood("a piece of a file"):
        pieces = [(text(row["path"]), whole(row["offset"]), content(row["data"])) for row in rows]
    return iter([(digests_in(note), pieces)])
