"""Copies files and folders between this computer and a device as they are, for `get`, `put` and `cp`.

Each method of `Copies` shows the progress of one copy, and prints its result as a line or as JSON.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastflight.cli.arguments import Target
from fastflight.cli.copy_progress import copy_progress, print_file_result, print_tree_result
from fastflight.client.local_names import FOLDS_CASE
from fastflight.client.options import FileOptions
from fastflight.errors import RequestError

if TYPE_CHECKING:
    from fastflight.client import CopiedTree, FastFlightClient

# A file in a local folder with more globs to leave out, one in each line.
IGNORE_FILE = ".fastflightignore"
# Left out of a folder that is copied to a device, without --all: nothing of it runs on a board.
IGNORED = (".git", ".venv", "node_modules", "__pycache__", ".DS_Store", "*.pyc", IGNORE_FILE)


@dataclass(frozen=True, slots=True)
class Copies:
    """The client and the options of all copies of one command."""

    client: FastFlightClient
    options: FileOptions
    # None: in folders, and not for single files, whose digest is one more request.
    skip_unchanged: bool | None = None
    resume: bool = True
    # Globs of files and folders that copies of folders leave out.
    ignore: Sequence[str] = ()
    json: bool = False
    # Remove files that only the target folder has.
    delete: bool = False

    def get_file(self, at: Target, path: Path) -> None:
        """Copy a file of a device to a local file."""

        def describe_rest(amount: str) -> str:
            return f"{amount} are kept in {path}.part; run the same command again to continue"

        with copy_progress(str(at), hidden=self.json, describe_rest=describe_rest if self.resume else None) as progress:
            copied = self.client.get_file(
                at.device,
                at.path,
                path,
                resume=self.resume,
                skip_unchanged=bool(self.skip_unchanged),
                progress=progress.report,
                resuming=progress.resuming,
                **self.options,
            )
        print_file_result(copied, str(path), "", _paths(at, path), json=self.json)

    def put_file(self, source: Path, at: Target) -> None:
        """Copy a local file to a device."""
        describe_rest = _describe_rest_on_board if self.resume else None
        with copy_progress(str(at), hidden=self.json, describe_rest=describe_rest) as progress:
            copied = self.client.put_file(
                at.device,
                at.path,
                source,
                resume=self.resume,
                skip_unchanged=bool(self.skip_unchanged),
                progress=progress.report,
                resuming=progress.resuming,
                **self.options,
            )
        print_file_result(copied, str(at), " written", _paths(at), json=self.json)

    def get_folder(self, at: Target, folder: Path) -> CopiedTree:
        """Copy the files of a folder on a device to a local folder."""

        def describe_rest(_: str) -> str:
            return f"the complete files are in {folder}; the same command copies the others"

        with copy_progress(str(at), hidden=self.json, describe_rest=describe_rest) as progress:
            tree = self.client.get_tree(
                at.device,
                at.path,
                folder,
                skip_unchanged=self.skip_unchanged is not False,
                ignore=self.ignore,
                delete=self.delete,
                progress=progress.file,
                **self.options,
            )
        print_tree_result(tree, str(folder), "read", _paths(at, folder), json=self.json)
        return tree

    def put_folder(self, source: Path, at: Target) -> CopiedTree:
        """Copy the files of a local folder to a folder on a device."""
        with copy_progress(str(at), hidden=self.json) as progress:
            tree = self.client.put_tree(
                at.device,
                at.path,
                source,
                skip_unchanged=self.skip_unchanged is not False,
                ignore=self.ignore,
                delete=self.delete,
                progress=progress.file,
                **self.options,
            )
        print_tree_result(tree, str(at), "written", _paths(at), json=self.json)
        return tree

    def between_files(self, source: Target, at: Target) -> None:
        """Copy a file of a device to a device, by way of a temporary file on this computer."""
        with _temporary_path() as path:
            with copy_progress(str(source), hidden=self.json) as progress:
                self.client.get_file(source.device, source.path, path, progress=progress.report, **self.options)
            self.put_file(path, at)

    def between_folders(self, source: Target, at: Target) -> None:
        """Copy the files of a folder on a device to a device, by way of a temporary folder on this computer."""
        with _temporary_path() as folder:
            with copy_progress(str(source), hidden=self.json) as progress:
                self.client.get_tree(source.device, source.path, folder, progress=progress.file, **self.options)
            folder.mkdir(exist_ok=True)  # there is none if the device's folder has no files
            self.put_folder(folder, at)


def globs_to_ignore(folder: Path) -> list[str]:
    """Return the globs of what to leave out of a local folder: `IGNORED`, and those of its `IGNORE_FILE`.

    Raises `RequestError` if that file cannot be read, or has a line that begins with `!`.
    """
    path = folder / IGNORE_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return list(IGNORED)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise RequestError(reason or "cannot be read", where=str(path)) from error
    globs = [line.strip() for line in text.splitlines()]
    for number, glob in enumerate(globs, 1):
        if glob.startswith("!"):
            raise RequestError(
                "a line that begins with ! is not supported",
                where=f"{path}, line {number}",
                hint="Remove it: a file that is left out cannot be taken in again",
            )
    return [*IGNORED, *(glob for glob in globs if glob and not glob.startswith("#"))]


def check_distinct(names: Iterable[str]) -> None:
    """Raise `RequestError` if two copies in one folder would have the same name."""
    taken = set()
    for name in names:
        if (folded := name.casefold() if FOLDS_CASE else name) in taken:
            raise RequestError("two copies would have this name", where=name, hint="Copy them to different folders")
        taken.add(folded)


@contextlib.contextmanager
def _temporary_path() -> Iterator[Path]:
    """Yield a path at which nothing is, and delete what is there after the block."""
    with tempfile.TemporaryDirectory(prefix="fastflight-") as folder:
        yield Path(folder) / "copy"


def _paths(at: Target, output: Path | None = None) -> dict[str, Any]:
    paths = {"device": at.device, "path": at.path}
    return paths if output is None else {**paths, "output": str(output)}


def _describe_rest_on_board(amount: str) -> str:
    return f"{amount} are kept on the board; run the same command again to continue"
