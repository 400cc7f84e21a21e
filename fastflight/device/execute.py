"""Running a short piece of code on a board, with its failures typed."""

from __future__ import annotations

from fastflight.device.capabilities import Capabilities
from fastflight.device.failure import own_failure
from fastflight.protocol import Conversation, RawRepl


def execute(repl: RawRepl, capabilities: Capabilities, code: str, where: str, within: float) -> Conversation[bytes]:
    """Run a short piece of code that works on `where`; its output, or the typed error for its traceback."""
    output = yield from repl.execute(code.encode(), within)
    if output.stderr:
        raise own_failure(output.stderr, where=where, platform=capabilities.platform)
    return output.stdout
