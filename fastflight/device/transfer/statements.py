"""Sends content as Python statements, to boards that cannot receive it in binary.

Each statement holds one block as base64 or as a literal, compressed if `deflating` is set and the block shrinks. It
writes the block to the open file `_ffo`, which stays on the board between them (`execute.Kept`), and prints how many
bytes it has written. `send` opens the file, sends all statements and closes the file. `send_to_agent` hands the open
file to the agent instead.
"""

from __future__ import annotations

import binascii
import textwrap

from fastflight.device.answers import routine_failure
from fastflight.device.execute import Kept, execute
from fastflight.device.transfer import routines
from fastflight.device.transfer.digest import RunningDigest
from fastflight.device.transfer.download import AGENT_CLOSE
from fastflight.device.transfer.frames import DEFLATE_RATIO, deflate
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import CLOSE, FILE, WRITE_SECONDS, StagedFile
from fastflight.errors import DeviceFull
from fastflight.protocol import Conversation, Fetch
from fastflight.protocol.agent import MAX_SENT_BYTES, AgentRepl

OPEN = """\
import os
try:
 _d=os.stat({path!r})[0]&0x4000
except (OSError,AttributeError):
 _d=0
if _d:
 raise OSError('EISDIR')
if {start} and os.stat({part!r})[6]!={start}:
 raise OSError('ESTALE')
t,o,n={part!r},{start},{coming}
{room}_ffo=open(t,{mode!r})
"""
WRITE = "print(_ffo.write({data}))"
BASE64 = "import binascii\n"
DEFLATE = "import io,deflate\n"
FLUSH = "if hasattr(_ffo,'flush'):\n _ffo.flush()\n"
# Follows `OPEN` where the agent writes the content itself.
HAND_OVER = f"import fastflight_agent as _ff\n_ff.f={FILE}\n_ff.pos={{start}}\n"
AGENT_FLUSH = "import fastflight_agent as _ff\nif hasattr(_ff.f,'flush'):\n _ff.f.flush()\n"


def open_code(link: BoardLink, staged: StagedFile, start: int, coming: int) -> str:
    """Return code that opens the staged file to write `coming` bytes, or more, from `start` on."""
    native_path = link.capabilities.native_path
    return OPEN.format(
        path=native_path(staged.path),
        part=native_path(staged.staging_path),
        start=start,
        coming=coming,
        room=textwrap.dedent(routines.ROOM) if link.capabilities.has("os.statvfs") else "",
        mode="ab" if start else "wb",
    )


def send(
    link: BoardLink, staged: StagedFile, sent: RunningDigest, piece: bytes | None, *, base64: bool, deflating: bool
) -> Conversation[None]:
    """Append `piece`, and all content that is fetched after it, to the staged file. Add what is written to `sent`.

    `piece` is None if nothing was fetched yet. `DeviceFull` if the board writes less than a whole block.
    """
    repl, capabilities, path = link.repl, link.capabilities, staged.path
    if piece is None:
        piece = yield Fetch()
    code = open_code(link, staged, sent.size, staged.coming(sent.size, len(piece)))
    file = Kept.at(FILE, capabilities)
    yield from execute(repl, capabilities, code + file.keep, path, WRITE_SECONDS)
    size = link.statement_bytes
    while piece:
        for start in range(0, len(piece), size):
            block = piece[start : start + size]
            code = file.load + statement(block, base64=base64, deflating=deflating)
            answer = yield from execute(repl, capabilities, code, path, WRITE_SECONDS, seal=False)
            if answer.strip() != str(len(block)).encode():
                raise DeviceFull(
                    f"the board wrote {answer.strip().decode(errors='replace')} of {len(block)} bytes",
                    where=path,
                    hint="Its storage is full: remove files you do not need",
                )
            sent.add(block)
        yield from execute(repl, capabilities, file.load + FLUSH, path, WRITE_SECONDS)
        piece = yield Fetch()
    yield from execute(repl, capabilities, file.load + CLOSE + file.drop, path, WRITE_SECONDS)


def send_to_agent(
    link: BoardLink, agent: AgentRepl, staged: StagedFile, sent: RunningDigest, piece: bytes | None
) -> Conversation[None]:
    """As `send`, through the agent of a program that goes on, in its frames."""
    capabilities, path = link.capabilities, staged.path
    if piece is None:
        piece = yield Fetch()
    code = open_code(link, staged, sent.size, staged.coming(sent.size, len(piece)))
    code += HAND_OVER.format(start=sent.size)
    yield from execute(agent, capabilities, code, path, WRITE_SECONDS)
    # Three frames fill the receive ring of the board. Each has 9 bytes of its own, the position, and escapes.
    size = min(agent.window // 3 - 16, MAX_SENT_BYTES - 4)
    while piece:
        losses = agent.losses
        stderr = yield from agent.write(sent.size, piece, size)
        for _ in range(agent.losses - losses):
            link.report_loss()
        if stderr:
            raise routine_failure(stderr, where=path, platform=capabilities.platform)
        sent.add(piece)
        yield from execute(agent, capabilities, AGENT_FLUSH, path, WRITE_SECONDS)
        piece = yield Fetch()
    yield from execute(agent, capabilities, AGENT_CLOSE, path, WRITE_SECONDS)


def statement(block: bytes, *, base64: bool, deflating: bool) -> str:
    """Return the code that writes `block` and prints how many bytes it has written."""
    imports, data = "", block
    compressed = deflate(block) if deflating else block
    if len(compressed) < len(block) * DEFLATE_RATIO:
        imports, data = DEFLATE, compressed
    else:
        deflating = False
    text = repr(data)
    if base64:
        imports += BASE64
        text = f"binascii.a2b_base64({binascii.b2a_base64(data, newline=False)!r})"
    if deflating:
        text = f"deflate.DeflateIO(io.BytesIO({text}),deflate.RAW,10).read()"
    return imports + WRITE.format(data=text)
