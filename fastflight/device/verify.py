"""Whether what lies on a board is what was sent."""

from __future__ import annotations

from fastflight.device.digest import Digest, digest
from fastflight.device.download import download
from fastflight.device.link import Link
from fastflight.device.parts import Unfinished
from fastflight.errors import ProtocolError
from fastflight.protocol import Conversation, Deliver


def verify(link: Link, unfinished: Unfinished, sent: Digest) -> Conversation[str]:
    """Compare what lies in the part with what was sent; how it was compared."""
    name, found = yield from digest(link, unfinished.part)
    if not name:
        name, found = "read back", (yield from _read_back(link, unfinished.part))
    if found != sent.hex(name if name == "crc32" else "sha256"):
        raise damaged(unfinished.path)
    return name


def damaged(path: str) -> ProtocolError:
    """What the board has is not what was sent."""
    return ProtocolError(
        "what the board wrote is not what was sent; the old file is untouched",
        where=path,
        hint="Write it again; if it happens often, use a lower speed or a better cable",
    )


def _read_back(link: Link, part: str) -> Conversation[str]:
    """The sha256 of a file as it is read from the board."""
    back = Digest()
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
