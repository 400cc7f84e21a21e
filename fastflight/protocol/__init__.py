"""Wire protocols, written without I/O. `conversation` explains how a runner carries out their dialogues."""

from fastflight.protocol.conversation import (
    Conversation,
    Deliver,
    Fetch,
    Limit,
    Pause,
    Receive,
    Send,
    Step,
    on_silence,
    ticking,
)
from fastflight.protocol.inbox import Inbox
from fastflight.protocol.raw_repl import Output, RawRepl

__all__ = [
    "Conversation",
    "Deliver",
    "Fetch",
    "Inbox",
    "Limit",
    "Output",
    "Pause",
    "RawRepl",
    "Receive",
    "Send",
    "Step",
    "on_silence",
    "ticking",
]
