"""The temporary file on the board that a write goes to, and how it replaces the old file.

It lies in the folder of the file that is written, so that a rename puts it in its place. A board that cannot rename
(micro:bit) copies the verified temporary file over the old one instead, once it has shown that there is room. A copy
that is interrupted is done again, and the temporary file is removed only after it. So the content is never lost, but
between a power cut and the next write the file may be incomplete.

Such a board writes a file that does not exist yet directly under its own name, which takes room for one copy instead of
two. It is verified there, and removed when the write fails (`docs/decisions/0047`).

A write goes through `choose_place`, the upload, `verify` and `place`; `explained` adds hints to its errors. After a
write that broke, `settle` cleans up and `find_partial_write` finds what can be resumed.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastflight.device.execute import execute, sealed
from fastflight.device.listing import stat
from fastflight.device.transfer.digest import RunningDigest, digest
from fastflight.device.transfer.download import download
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.types import PartialWrite
from fastflight.errors import DeviceError, DeviceFull, FileMissing, ProtocolError, RequestError, TransportError
from fastflight.protocol import Conversation, Deliver

# One name per folder, so that a broken transfer leaves at most one such file, which the next one writes over.
TEMPORARY_NAME = ".fastflight-part"
# A file that is written and removed again, to see whether there is room for a copy.
TRIAL_NAME = ".fastflight-room"

# Erasing a flash sector takes up to a few hundred milliseconds, wear levelling a few of them.
WRITE_SECONDS = 15.0

CLOSE = """\
try:
 _ff.close()
except Exception:
 pass
"""
REMOVE = """\
import os
try:
 os.remove({part!r})
except OSError:
 pass
"""
RENAME = "import os\nos.rename({part!r},{path!r})\n"
# For a file that may be in its place already.
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
    """A write to `path` that has not ended, and how far it has come on the board."""

    path: str
    # A write that breaks leaves its temporary file, to be resumed.
    keep: bool = False
    # Its number among the files of a tree; None for a write by itself.
    number: int | None = None
    # The verified temporary file is being copied over the old one.
    copying: bool = False
    # It is verified, and one of several that are being renamed.
    placing: bool = False
    # The file is new, and the board cannot rename: it is written under its own name.
    direct: bool = False

    @property
    def staging_path(self) -> str:
        """The name that the write goes to: a temporary one, except for a direct write."""
        if self.direct:
            return self.path
        name = TEMPORARY_NAME if self.number is None else f"{TEMPORARY_NAME}-{self.number}"
        return posixpath.join(posixpath.dirname(self.path), name)


def writable(path: str) -> str:
    """Return `path`. `RequestError` if its name is one that temporary files have."""
    if posixpath.basename(path).startswith((TEMPORARY_NAME, TRIAL_NAME)):
        raise RequestError("the name is for what writes leave behind", where=path, hint="Give it another name")
    return path


def choose_place(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Decide whether the write goes directly to the file's own name."""
    if link.capabilities.has("os.rename"):
        return
    try:
        yield from stat(link.repl, link.capabilities, staged.path)
    except FileMissing:
        staged.direct = True


@contextlib.contextmanager
def explained(link: BoardLink, staged: StagedFile) -> Iterator[None]:
    """Add to the errors of a write what is particular to a board that cannot rename."""
    try:
        yield
    except TransportError as error:
        if staged.direct:
            place = f"a part of {staged.path} may lie on the board: write it again, or remove it"
            error.hint = f"{error.hint}; {place}" if error.hint else place[0].upper() + place[1:]
        raise
    except DeviceFull as error:
        if not staged.direct and not link.capabilities.has("os.rename"):
            second = "To replace a file, this board needs room for a second copy: remove the old one first"
            error.hint = f"{error.hint}. {second}" if error.hint else second
        raise
    except FileMissing:
        if staged.direct and not link.capabilities.folders:
            raise _bad_name(staged.path) from None
        raise


def find_partial_write(link: BoardLink, path: str) -> Conversation[PartialWrite | None]:
    """What a broken write to `path` left and a write can resume. None also where the board can take no digest."""
    part = StagedFile(path).staging_path
    try:
        size = (yield from stat(link.repl, link.capabilities, part)).size
        name, found = yield from digest(link, part)
    except FileMissing:
        return None
    return PartialWrite(size, name, found) if name else None


def verify(link: BoardLink, staged: StagedFile, sent: RunningDigest) -> Conversation[str]:
    """Compare the staged file with what was `sent`. Returns how: `sha256`, `crc32` or `read back`."""
    name, found = yield from digest(link, staged.staging_path)
    if not name:
        name, found = "read back", (yield from _read_back(link, staged.staging_path))
    if found != sent.hex(name if name == "crc32" else "sha256"):
        raise damaged(staged.path)
    return name


def damaged(path: str) -> ProtocolError:
    """The error for a staged file that is not what was sent."""
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
        names = {"path": link.capabilities.spelled(path), "part": link.capabilities.spelled(staged.staging_path)}
        yield from execute(link.repl, link.capabilities, RENAME.format(**names), path, WRITE_SECONDS)
        return
    yield from _try_room(link, path, size)
    staged.copying = True
    yield from execute(link.repl, link.capabilities, _copy(link, staged), path, WRITE_SECONDS)


def place_all(link: BoardLink, parts: Sequence[StagedFile]) -> Conversation[None]:
    """As `place`, for several files on a board that can rename."""
    spelled = link.capabilities.spelled
    pairs = tuple((spelled(each.staging_path), spelled(each.path)) for each in parts)
    code = RENAME_ALL.format(pairs=pairs)
    yield from execute(link.repl, link.capabilities, code, parts[0].path, WRITE_SECONDS)


def settle(link: BoardLink, staged: StagedFile) -> Conversation[None]:
    """Clean up after a broken write: finish replacing the old file if that had begun, else remove what is not kept."""
    part, path = (link.capabilities.spelled(name) for name in (staged.staging_path, staged.path))
    if staged.copying:
        # If the copy was finished, there is nothing to copy any more. If not, the content is in the staged file alone.
        code = _copy(link, staged)
    elif staged.placing:
        code = RENAME_LEFT.format(part=part, path=path) + REMOVE.format(part=part)
    else:
        code = CLOSE if staged.keep and not staged.direct else CLOSE + REMOVE.format(part=part)
    yield from link.repl.execute(sealed(link.repl, link.capabilities, code), WRITE_SECONDS)


def _copy(link: BoardLink, staged: StagedFile) -> str:
    return COPY.format(
        part=link.capabilities.spelled(staged.staging_path),
        path=link.capabilities.spelled(staged.path),
        size=link.capabilities.block_bytes,
    )


def _try_room(link: BoardLink, path: str, size: int) -> Conversation[None]:
    """Raise unless the file at `path` can grow to `size`. A copy would notice only when the old file is gone."""
    name = path.encode()
    try:
        growth = size - (yield from stat(link.repl, link.capabilities, path)).size
    except FileMissing:
        growth = size + len(name)
    if growth <= 0:
        return
    # As long as the real name, so that the trial covers a name that is too long.
    trial = posixpath.join(posixpath.dirname(path), TRIAL_NAME).ljust(len(name), "-")
    code = TRIAL.format(path=link.capabilities.spelled(trial), size=growth, block=link.capabilities.block_bytes)
    try:
        yield from execute(link.repl, link.capabilities, code, path, WRITE_SECONDS)
    except FileMissing:
        raise _bad_name(path) from None


def _bad_name(path: str) -> DeviceError:
    """The error that a flat file system reports as `file not found` when a file is opened for writing."""
    return DeviceError(
        "the board does not accept the name", where=path, hint="Use a shorter name", errno="ENAMETOOLONG"
    )


def _read_back(link: BoardLink, part: str) -> Conversation[str]:
    """The sha256 of a file as it is read from the board."""
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
