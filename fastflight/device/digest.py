"""Digests of what was sent, and of what lies on a board."""

from __future__ import annotations

import binascii
import hashlib

from fastflight.device.capabilities import Capabilities
from fastflight.device.execute import execute
from fastflight.protocol import Conversation, RawRepl

# Between two dots that say that the board is still at work: 32 blocks of a slow flash.
HASH_SECONDS = 15.0

SHA256 = """\
def _ff():
 import hashlib
 h=hashlib.sha256()
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b)
   if not n:
    break
   h.update(m[:n])
   k+=1
   if k%32==0:
    print('.')
 print(''.join('%02x'%c for c in h.digest()))
_ff()
"""
CRC32 = """\
def _ff():
 import binascii
 c=0
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b)
   if not n:
    break
   c=binascii.crc32(m[:n],c)
   k+=1
   if k%32==0:
    print('.')
 print('%08x'%(c&0xffffffff))
_ff()
"""


class Digest:
    """What was sent, as it was sent."""

    def __init__(self) -> None:
        self.size = 0
        self.crc32 = 0
        self.sha256 = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.crc32 = binascii.crc32(data, self.crc32)
        self.sha256.update(data)


def digest(repl: RawRepl, capabilities: Capabilities, path: str) -> Conversation[tuple[str, str]]:
    """The name and the hexadecimal digest of the best hash that the board itself can take of a file."""
    for feature, code in (("hashlib.sha256", SHA256), ("binascii.crc32", CRC32)):
        if capabilities.has(feature):
            text = code.format(path=capabilities.spelled(path), size=capabilities.block_bytes)
            answer = yield from execute(repl, capabilities, text, path, HASH_SECONDS)
            # Dots before it said that the board was still at work.
            return feature.rpartition(".")[2], answer.decode("ascii", "replace").split()[-1]
    return "", ""
