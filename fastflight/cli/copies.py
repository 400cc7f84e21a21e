"""Copies files and folders as they are, between this computer and devices, for `get`, `put`, `cp` and `sync`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import Target
from fastflight.cli.copy_progress import copy_progress
from fastflight.client.local_names import FOLDS_CASE
from fastflight.client.options import FileOptions
from fastflight.errors import RequestError, quantity
from fastflight.tables.endings import copied_as_is, ending_of, is_table

if TYPE_CHECKING:
    from fastflight.cli.server_options import Boards
    from fastflight.client import Copied, CopiedTree

# A file in a local folder with more globs to leave out, one in each line.
IGNORE_FILE = ".fastflightignore"
# Left out of a folder that is copied to a device, without --all: nothing of it runs on a board.
IGNORED = (".git", ".venv", "node_modules", "__pycache__", ".DS_Store", "*.pyc", IGNORE_FILE)
# Endings of tables that fastflight does not write. Without this, the bytes of a table would be copied under a name that
# says that they are another one.
OTHER_TABLES = frozenset((".xlsx", ".xls", ".ods", ".feather", ".orc", ".avro", ".db", ".sqlite", ".h5"))


@dataclass(frozen=True, slots=True)
class Copies:
    """The boards and the options of all copies of one command. A place is a path on a device, or one on this computer.

    `copy_file` and `copy_folder` copy from one place to another, of which one at least is on a device. They show the
    progress, and print the result.
    """

    boards: Boards
    options: FileOptions
    # None: in folders, and not for single files, whose digest is one more request.
    skip_unchanged: bool | None = None
    resume: bool = True
    # Globs of files and folders that copies of folders leave out.
    ignore: Sequence[str] = ()
    json: bool = False
    # Remove files that only the target folder has.
    delete: bool = False

    def copy_file(self, source: Target | Path, to: Target | Path) -> Copied:
        """Copy a file. From one device to another it goes by way of a temporary file on this computer."""
        if isinstance(source, Target) and isinstance(to, Target):
            with _temporary_path() as path:
                replace(self, resume=False, skip_unchanged=False)._file(source, path)
                return self.copy_file(path, to)
        copied = self._file(source, to)
        self._print(to, source, copied, describe_file(copied, " written" if isinstance(to, Target) else ""))
        return copied

    def copy_folder(self, source: Target | Path, to: Target | Path) -> CopiedTree:
        """Copy the files of a folder. From one device to another they go by way of a temporary folder here."""
        if isinstance(source, Target) and isinstance(to, Target):
            with _temporary_path() as folder:
                replace(self, ignore=(), delete=False)._folder(source, folder)
                folder.mkdir(exist_ok=True)  # there is none if the device's folder has no files
                return self.copy_folder(folder, to)
        tree = self._folder(source, to)
        if tree.skipped and not self.json:
            screen.complain(f"not copied, neither files nor folders: {', '.join(tree.skipped)}")
        self._print(to, source, tree, describe_tree(tree, "written" if isinstance(to, Target) else "read"))
        return tree

    def _file(self, source: Target | Path, to: Target | Path) -> Copied:
        at, local, writes = _ends(source, to)
        rest = "on the board" if writes else f"in {to}.part"

        def describe_rest(amount: str) -> str:
            return f"{amount} are kept {rest}; run the same command again to continue"

        board = self.boards.board(at.device, **self.options)
        with copy_progress(str(at), hidden=self.json, describe_rest=describe_rest if self.resume else None) as progress:
            return (board.put_file if writes else board.get_file)(
                at.path,
                local,
                resume=self.resume,
                skip_unchanged=bool(self.skip_unchanged),
                progress=progress.report,
                resuming=progress.resuming,
            )

    def _folder(self, source: Target | Path, to: Target | Path) -> CopiedTree:
        at, local, writes = _ends(source, to)

        def describe_rest(_: str) -> str:
            return f"the complete files are in {to}; the same command copies the others"

        board = self.boards.board(at.device, **self.options)
        with copy_progress(str(at), hidden=self.json, describe_rest=None if writes else describe_rest) as progress:
            return (board.put_tree if writes else board.get_tree)(
                at.path,
                local,
                skip_unchanged=self.skip_unchanged is not False,
                ignore=self.ignore,
                delete=self.delete,
                progress=progress.file,
            )

    def _print(self, to: Target | Path, source: Target | Path, copied: Copied | CopiedTree, result: str) -> None:
        """Print where the copy is, and `result`; or as JSON the place on the device, the one here, and `copied`."""
        if not self.json:
            screen.line(f"{to}: {result}")
            return
        at, _, writes = _ends(source, to)
        output = {} if writes else {"output": str(to)}
        screen.as_json({"device": at.device, "path": at.path, **output, **asdict(copied)})


def describe_file(copied: Copied, verb: str) -> str:
    """Describe the result of copying a file. `verb` follows the size, as in " written"."""
    if copied.unchanged:
        return "unchanged"
    earlier = f", {screen.size(copied.resumed_at)} of it earlier" if copied.resumed_at else ""
    return f"{screen.size(copied.bytes)}{verb}{earlier}"


def describe_tree(tree: CopiedTree, verb: str) -> str:
    """Describe the result of copying a folder. `verb` is "read" or "written"."""
    parts = [f"{quantity(len(tree.files), 'file')}, {screen.size(tree.bytes)} {verb}"] if tree.files else []
    if tree.unchanged:
        parts.append(f"{len(tree.unchanged):,} unchanged")
    if tree.removed:
        parts.append(f"{len(tree.removed):,} removed")
    parts = parts or ["no files"]
    if tree.ignored:
        parts.append(f"{len(tree.ignored):,} left out")
    return "; ".join(parts)


def is_copy(source: str, to: str, format: str | None) -> bool:
    """Whether bytes are copied from the name `source` to the name `to`, and no rows are converted.

    Wrong usage if rows of a table would have to be written in a format of tables that is not known here.
    """
    if format is not None:
        return format == "raw"
    ending = ending_of(to)
    if ending in OTHER_TABLES and ending != ending_of(source) and is_table(source):
        raise typer.BadParameter(
            f"tables are not written as {ending}: end {to!r} in .csv, .jsonl, .arrow, .parquet or .mcap, or copy "
            "its bytes: --format raw"
        )
    return copied_as_is(source, to)


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


def _ends(source: Target | Path, to: Target | Path) -> tuple[Target, Path, bool]:
    """Return the place on the device, the one on this computer, and whether the device is written to."""
    match source, to:
        case Path() as local, Target() as at:
            return at, local, True
        case Target() as at, Path() as local:
            return at, local, False
    raise AssertionError("one of the two places is on a device, and one is not")
