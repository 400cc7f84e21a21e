"""Digests of what was sent, and of what lies on a board."""

from __future__ import annotations

import binascii
import hashlib

from fastflight.device.capabilities import Capabilities
from fastflight.device.execute import execute
from fastflight.device.transfer import Resumption
from fastflight.protocol import Conversation, RawRepl

# Between two dots that say that the board is still at work: 32 blocks of a slow flash.
HASH_SECONDS = 15.0

SHA256 = """\
def _ff(l):
 import hashlib
 h=hashlib.sha256()
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b if l<0 or l>{size} else m[:l])
   if not n:
    break
   l-=n
   h.update(m[:n])
   k+=1
   if k%32==0:
    print('.')
 print(''.join('%02x'%c for c in h.digest()))
_ff({limit})
"""
CRC32 = """\
def _ff(l):
 import binascii
 c=0
 b=bytearray({size})
 m=memoryview(b)
 with open({path!r},'rb') as f:
  k=0
  while 1:
   n=f.readinto(b if l<0 or l>{size} else m[:l])
   if not n:
    break
   l-=n
   c=binascii.crc32(m[:n],c)
   k+=1
   if k%32==0:
    print('.')
 print('%08x'%(c&0xffffffff))
_ff({limit})
"""


class Digest:
    """What was sent, as it was sent; with `resume`, of the whole that it completes."""

    def __init__(self, resume: Resumption | None = None) -> None:
        self.size = resume.part.size if resume else 0
        self._crc32 = int(resume.part.digest, 16) if resume and resume.part.algorithm == "crc32" else 0
        # The state of a sha256 cannot be had from its value: the whole's is what the caller says.
        self._sha256 = resume.sha256 if resume else hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._crc32 = binascii.crc32(data, self._crc32)
        if not isinstance(self._sha256, str):
            self._sha256.update(data)

    @property
    def sha256(self) -> str:
        """Hexadecimal."""
        return self._sha256 if isinstance(self._sha256, str) else self._sha256.hexdigest()

    @property
    def crc32(self) -> str:
        """Hexadecimal. Of the whole only where the part's was a crc32."""
        return f"{self._crc32:08x}"


def digest(
    repl: RawRepl, capabilities: Capabilities, path: str, limit: int | None = None
) -> Conversation[tuple[str, str]]:
    """The name and the hexadecimal digest of the best hash that the board itself can take of a file."""
    for feature, code in (("hashlib.sha256", SHA256), ("binascii.crc32", CRC32)):
        if capabilities.has(feature):
            text = code.format(
                path=capabilities.spelled(path), size=capabilities.block_bytes, limit=-1 if limit is None else limit
            )
            answer = yield from execute(repl, capabilities, text, path, HASH_SECONDS)
            # Dots before it said that the board was still at work.
            return feature.rpartition(".")[2], answer.decode("ascii", "replace").split()[-1]
    return "", ""
