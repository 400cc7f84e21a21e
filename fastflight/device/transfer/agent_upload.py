"""Sends content to a board through its agent, while the board's program goes on."""

from __future__ import annotations

from fastflight.device.answers import routine_failure
from fastflight.device.execute import execute
from fastflight.device.transfer import statements
from fastflight.device.transfer.digest import RunningDigest
from fastflight.device.transfer.download import AGENT_CLOSE
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import FILE, WRITE_SECONDS, StagedFile
from fastflight.protocol import Conversation, Fetch
from fastflight.protocol.agent import MAX_SENT_BYTES, AgentRepl

# Follows `statements.OPEN`.
HAND_OVER = f"import fastflight_agent as _ff\n_ff.f={FILE}\n_ff.pos={{start}}\n"
FLUSH = "import fastflight_agent as _ff\nif hasattr(_ff.f,'flush'):\n _ff.f.flush()\n"


def send(
    link: BoardLink, agent: AgentRepl, staged: StagedFile, sent: RunningDigest, piece: bytes | None
) -> Conversation[None]:
    """As `statements.send`, through the agent."""
    capabilities, path = link.capabilities, staged.path
    if piece is None:
        piece = yield Fetch()
    code = statements.open_code(link, staged, sent.size, staged.coming(sent.size, len(piece)))
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
        yield from execute(agent, capabilities, FLUSH, path, WRITE_SECONDS)
        piece = yield Fetch()
    yield from execute(agent, capabilities, AGENT_CLOSE, path, WRITE_SECONDS)
