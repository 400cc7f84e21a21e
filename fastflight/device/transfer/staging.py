"""The temporary file on the board that a write goes to, and how it replaces the old file.

The temporary file is in the folder of the target file, so that a rename can replace the target. A board that cannot
rename (micro:bit) instead copies the verified temporary file over the old one, after it has checked that there is room.
An interrupted copy is repeated, and the temporary file is removed only after the copy. So the content is never lost,
but between a power cut and the next write the file may be incomplete.

Such a board writes a new file directly under its own name, which needs room for one copy instead of two. The file is
verified there, and removed if the write fails (`docs/decisions/0004`).

A write calls `choose_place`, uploads, then calls `verify` and `place`. `explain_errors` adds hints to the errors of
these steps. After a broken write, `clean_up` removes its files, and `find_partial_write` finds a part to resume.
"""

from __future__ import annotations

import contextlib
import posixpath
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.device.execute import Kept, can_seal, execute
from fastflight.device.listing import stat
from fastflight.device.transfer.digest import RunningDigest, digest
from fastflight.device.transfer.download import download
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import PartialWrite
from fastflight.errors import DeviceError, DeviceFull, FileMissing, ProtocolError, RequestError, TransportError
from fastflight.protocol import Conversation, Deliver

# One name per folder: a broken write leaves at most one such file, and the next write overwrites it.
TEMPORARY_NAME = ".fastflight-part"
# A file that is written and removed again to check that there is room for a copy.
TRIAL_NAME = ".fastflight-room"

# Erasing a flash sector takes up to a few hundred milliseconds, and wear levelling may erase several.
WRITE_SECONDS = 15.0

# The open file of a write in text form (`statements`), which stays on the board between commands.
FILE = "_ffo"
CLOSE = f"{FILE}.close()\n"
REMOVE = """\
import os
try:
 os.remove({part!r})
except OSError:
 pass
"""
# Removes folders that are empty.
RMDIR = """\
for p in {folders!r}:
 try:
  os.rmdir(p)
 except OSError:
  pass
"""
RENAME = "import os\nos.rename({part!r},{path!r})\n"
# Renames a file, and accepts that an earlier attempt may have renamed it already.
RENAME_LEFT = """\
import os
try:
 os.rename({part!r},{path!r})
except OSError:
 pass
"""
RENAME_ALL = "import os\nfor p,q in {pairs!r}:\n os.rename(p,q)\n"
TRIAL = """\
import os
n={size}
f=open({path!r},'wb')
try:
 while n>0:
  n-=f.write(b' '*{block})
finally:
 f.close()
 try:
  os.remove({path!r})
 except OSError:
  pass
"""
COPY = """\
import os
with open({part!r},'rb') as s:
 with open({path!r},'wb') as d:
  while 1:
   b=s.read({size})
   if not b:
    break
   d.write(b)
os.remove({part!r})
"""


@dataclass(slots=True)
class StagedFile:
    """A write to `path` that has not ended, and its state on the board."""

    path: str
    # A broken write keeps its temporary file, so that it can be resumed.
    keep: bool = False
    # Its number among the files of a tree; None for a single file.
    number: int | None = None
    # The verified temporary file is being copied over the old one.
    copying: bool = False
    # The temporary file is verified and is being renamed, with others of a tree.
    placing: bool = False
    # The file is new, and the board cannot rename: it is written under its own name.
    direct: bool = False
    # The size of the whole file; None if it is not known.
    size: int | None = None
    # Folders that were made for it, each before its parent.
    made_folders: tuple[str, ...] = ()

    def coming(self, stored: int, fetched: int) -> int:
        """Return how many bytes are still to be written: of the whole file, or else those that were `fetched`."""
        return fetched if self.size is None else max(self.size - stored, fetched)

    @property
    def staging_path(self) -> str:
        """The path that the write goes to: a temporary file, or `path` itself for a direct write."""
        if self.direct:
            return self.path
        name = TEMPORARY_NAME if self.number is None else f"{TEMPORARY_NAME}-{self.number}"
        return posixpath.join(posixpath.dirname(self.path), name)


def check_writable(path: str) -> str:
    """Return `path`. `RequestError` if its name is reserved for temporary files."""
    if posixpath.basename(path).startswith((TEMPORARY_NAME, TRIAL_NAME)):
        raise RequestError("the name is reserved for temporary files", where=path, hint="Give it another name")
    return path


def choose_place(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Decide whether the write goes directly to the file's own name, and set `staged.direct`."""
    if link.capabilities.has("os.rename"):
        return
    try:
        yield from stat(link.repl, link.capabilities, staged.path)
    except FileMissing:
        staged.direct = True


@contextlib.contextmanager
def explain_errors(link: BoardLink, staged: StagedFile) -> Iterator[None]:
    """Add hints for a board that cannot rename to the errors that a write raises in the block."""
    try:
        yield
    except TransportError as error:
        if staged.direct:
            place = f"a part of {staged.path} may lie on the board: write it again, or remove it"
            error.hint = f"{error.hint}; {place}" if error.hint else place[0].upper() + place[1:]
        raise
    except DeviceFull as error:
        # Nothing of it can go on, and what else the board stores needs the room.
        staged.keep = False
        if not staged.direct and not link.capabilities.has("os.rename"):
            second = "To replace a file, this board needs room for a second copy: remove the old one first"
            error.hint = f"{error.hint}. {second}" if error.hint else second
        raise
    except FileMissing:
        if staged.direct and not link.capabilities.folders:
            raise _bad_name(staged.path) from None
        raise


def find_partial_write(link: BoardLink, path: str) -> Conversation[PartialWrite | None]:
    """Return the part of a broken write to `path` that can be resumed. None if there is none, or no digest of it."""
    part = StagedFile(path).staging_path
    try:
        size = (yield from stat(link.repl, link.capabilities, part)).size
        name, found = yield from digest(link, part)
    except FileMissing:
        return None
    return PartialWrite(size, name, found) if name else None


def verify(link: BoardLink, staged: StagedFile, sent: RunningDigest) -> Conversation[str]:
    """Compare the staged file with what was `sent`. Return the method: `sha256`, `crc32` or `read back`."""
    name, found = yield from digest(link, staged.staging_path)
    if not name:
        name, found = "read back", (yield from _read_back(link, staged.staging_path))
    if found != sent.hex(name if name == "crc32" else "sha256"):
        raise damaged_error(staged.path)
    return name


def damaged_error(path: str) -> ProtocolError:
    """Return the error for a staged file that differs from what was sent."""
    return ProtocolError(
        "what the board wrote is not what was sent; the old file is untouched",
        where=path,
        hint="Write it again; if it happens often, use a lower speed or a better cable",
    )


def place(link: BoardLink, staged: StagedFile, size: int) -> Conversation[None]:
    """Replace the old file with the verified staged one, of `size` bytes."""
    if staged.direct:
        return
    path = staged.path
    if link.capabilities.has("os.rename"):
        native_path = link.capabilities.native_path
        code = RENAME.format(path=native_path(path), part=native_path(staged.staging_path))
        yield from execute(link.repl, link.capabilities, code, path, WRITE_SECONDS)
        return
    yield from _check_room(link, path, size)
    staged.copying = True
    yield from execute(link.repl, link.capabilities, _copy_code(link, staged), path, WRITE_SECONDS)


def place_all(link: BoardLink, parts: Sequence[StagedFile]) -> Conversation[None]:
    """As `place`, for several files at once, on a board that can rename."""
    native_path = link.capabilities.native_path
    pairs = tuple((native_path(each.staging_path), native_path(each.path)) for each in parts)
    code = RENAME_ALL.format(pairs=pairs)
    yield from execute(link.repl, link.capabilities, code, parts[0].path, WRITE_SECONDS)


def clean_up(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Clean up after a broken write: finish replacing the old file if that has begun, else remove the temporary file.

    A temporary file that is to be kept stays. Folders that were made for it go, unless there are other files in them.
    """
    part, path = (link.capabilities.native_path(name) for name in (staged.staging_path, staged.path))
    if staged.copying:
        # If the copy was complete, the staged file is gone and this fails without harm. If not, the staged file is the
        # only copy of the content.
        code = _copy_code(link, staged)
    elif staged.placing:
        code = RENAME_LEFT.format(part=part, path=path) + REMOVE.format(part=part)
    else:
        file = Kept.at(FILE, link.capabilities)
        code = f"try:\n{textwrap.indent(file.load + CLOSE + file.drop, ' ')}except Exception:\n pass\n"
        code += "" if staged.keep and not staged.direct else REMOVE.format(part=part)
        code += RMDIR.format(folders=staged.made_folders) if staged.made_folders else ""
    yield from link.repl.execute(code.encode(), WRITE_SECONDS, sealed=can_seal(link.repl, link.capabilities))


def _copy_code(link: BoardLink, staged: StagedFile) -> str:
    return COPY.format(
        part=link.capabilities.native_path(staged.staging_path),
        path=link.capabilities.native_path(staged.path),
        size=link.capabilities.block_bytes,
    )


def _check_room(link: BoardLink, path: str, size: int) -> Conversation[None]:
    """Raise an error unless the file at `path` can grow to `size`: a copy fails only after the old file is gone."""
    name = path.encode()
    try:
        growth = size - (yield from stat(link.repl, link.capabilities, path)).size
    except FileMissing:
        growth = size + len(name)
    if growth <= 0:
        return
    # As long as the real name, so that the trial also fails on a name that is too long.
    trial = posixpath.join(posixpath.dirname(path), TRIAL_NAME).ljust(len(name), "-")
    code = TRIAL.format(path=link.capabilities.native_path(trial), size=growth, block=link.capabilities.block_bytes)
    try:
        yield from execute(link.repl, link.capabilities, code, path, WRITE_SECONDS)
    except FileMissing:
        raise _bad_name(path) from None


def _bad_name(path: str) -> DeviceError:
    """Return the error for a bad name, which a flat file system reports as `file not found` on opening for writing."""
    return DeviceError(
        "the board does not accept the name", where=path, hint="Use a shorter name", errno="ENAMETOOLONG"
    )


def _read_back(link: BoardLink, part: str) -> Conversation[str]:
    """Read a file back from the board and return its sha256."""
    back = RunningDigest()
    steps = download(link, part)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Deliver):
                back.add(step.data)
                step = steps.send(b"")
            else:
                step = steps.send((yield step))
    except StopIteration:
        return back.sha256
