"""Reads a file through the agent on a board, whose program goes on.

Content crosses the line in the agent's frames, which have checksums of their own. Between two frames the program runs.
"""

from __future__ import annotations

from fastflight.device.answers import routine_failure
from fastflight.device.execute import execute
from fastflight.device.transfer.link import BoardLink
from fastflight.errors import ProtocolError, TransportTimeout
from fastflight.protocol import Conversation, Deliver
from fastflight.protocol.agent import READ_BYTES, AgentRepl

# The agent may have to wait for the board's program.
AGENT_SECONDS = 15.0
# How long the program stands still while the agent sends a block, in seconds.
BLOCK_SECONDS = 0.04
MOST_BLOCK_BYTES = 2048
LEAST_BLOCK_BYTES = 256
# Attempts in a row that bring nothing new.
FRUITLESS_ATTEMPTS = 3

OPEN = "import fastflight_agent as _ff\n_ff.f=open({path!r},'rb')\n_ff.pos=_ff.f.seek({offset})\n"
CLOSE = "import fastflight_agent as _ff\n_ff.f.close()\n"


def download(link: BoardLink, agent: AgentRepl, path: str, offset: int, limit: int | None) -> Conversation[None]:
    """As `download.download`, through the agent."""
    size = block_bytes(link)
    left = -1 if limit is None else limit
    fruitless = 0
    code = OPEN.format(path=link.capabilities.native_path(path), offset=offset)
    yield from execute(agent, link.capabilities, code, path, AGENT_SECONDS)
    while left:
        count = READ_BYTES if left < 0 else min(left, READ_BYTES)
        moved = 0
        steps = agent.read(offset, count, size)
        try:
            # Counts what is delivered, also if the conversation breaks.
            step = next(steps)
            while True:
                answer = yield step
                moved += len(step.data) if isinstance(step, Deliver) else 0
                step = steps.send(answer)
        except StopIteration as end:
            done, stderr = end.value
            if stderr:
                raise routine_failure(stderr, where=path, platform=link.capabilities.platform) from None
            offset += done
            left -= done if left > 0 else 0
            if done < count:
                break
        except (TransportTimeout, ProtocolError):
            fruitless = 1 if moved else fruitless + 1
            if fruitless > FRUITLESS_ATTEMPTS:
                raise
            offset += moved
            left -= moved if left > 0 else 0
            link.report_loss()
            yield from agent.recover()
            code = OPEN.format(path=link.capabilities.native_path(path), offset=offset)
            yield from execute(agent, link.capabilities, code, path, AGENT_SECONDS)
    yield from execute(agent, link.capabilities, CLOSE, path, AGENT_SECONDS)


def block_bytes(link: BoardLink) -> int:
    """Return how many bytes the agent sends at once: as many as the line carries in `BLOCK_SECONDS`."""
    most = min(MOST_BLOCK_BYTES, link.capabilities.block_bytes)
    if link.pace is None:
        return most
    return max(min(int(link.pace * BLOCK_SECONDS), most), LEAST_BLOCK_BYTES)
