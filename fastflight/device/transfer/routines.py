r"""The routines that transfer files on the board: MicroPython source, kept short because it crosses the line.

Each text defines one function `_ff`. `resident` fills in the text by what the board can do, installs the function under
the routine's name and calls it; `{name}` is the module that holds all routines. A function finds only the board's
builtins, so it imports all else. A routine prints `R` when it has
started, or raises before that. `size` is how many bytes it reads or holds at once.

`put(path, part, offset, size, step, coming)` receives blocks (`frames`) and appends them to the file `part`, from
`offset` on. It refuses to start if the storage has no room for `coming` bytes, which is how much the host has so far.
It answers `A` after every `step` bytes, and after the last bytes of a block once the block is written. On a failure it
sends `E`, the traceback and `\x04`. Then it discards its input until Ctrl-C, because the board's prompt would run the
rest as code. On some ports, such as unix, Ctrl-C does not interrupt this routine, but is a byte of its input. Content
never contains that byte, so a step that ends with it is an interrupt. A host that recovers such a board sends enough of
these bytes to fill a step (`RawRepl.recover`).

After the last block, if asked to verify, `put` reads the part back from the storage and sends its digest. It renames
the part only if the answer is the beginning of that digest, 8 hexadecimal characters. A board that lost bytes may
mistake content for the end and for an answer, and must not replace a file because of that.

`get(path, offset, count, size)` sends blocks: the byte 1, a length (2 bytes) and a crc32 (4 bytes), both little endian,
then the bytes. Each crc32 continues the one before, and the last block is empty, so that lost blocks or a missing end
are detected. A negative `count` means all of the file.

`sum(path, count, size)` returns the digest of a file or of its first `count` bytes. It prints a dot every 32 blocks, to
show that it is still at work.

`show(paths, count, size)` prints those digests in hexadecimal, one line for each path.

`tree(path, size)` prints one line for each file below `path`: path, size and digest, in base64 if the board has it.
"""

from __future__ import annotations

# How long a board that can poll its input waits for a host that has gone. It polls before each read of a step; within
# a read only Ctrl-C ends the wait.
HOST_SECONDS = 30

PUT = """\
def _ff(p,t,o,z,k,n):
 import os,sys,binascii,{name}
 try:
  d=os.stat(p)[0]&16384
 except (OSError,AttributeError):
  d=0
 if d:
  raise OSError('EISDIR')
 if o and os.stat(t)[6]!=o:
  raise OSError('ESTALE')
{room} f=open(t,'ab'if o else'wb')
{take}
 w=sys.stdout.buffer.write
 m=memoryview(bytearray(z))
 w(b'R')
 try:
  while 1:
   i(m[:3])
   g=m[0]
   n=m[1]&127|(m[2]&127)<<7
   if g&4:
    break
   a=0
   while 1:
    s=min(k,n-a)
    i(m[a:a+s])
    a+=s
    if m[a-1]==3:
     raise OSError('EINTR')
    if a==n:
     break
    w(b'A')
   d=bytes(m[:n]).replace(b'\\x10S',b'\\x03').replace(b'\\x10P',b'\\x10')
   x=d[4:]
   if (binascii.crc32(x)&0xffffffff).to_bytes(4,'little')!=d[:4]:
    raise ValueError('damaged')
   if g&1:
    import io,deflate
    x=deflate.DeflateIO(io.BytesIO(x),deflate.RAW,10).read()
   if f.write(x)!=len(x):
    raise OSError('ENOSPC')
   if g&2:
    f.flush()
   w(b'A')
 except Exception as x:
  w(b'E')
  sys.print_exception(x)
  w(b'\\4')
  while 1:
   i(m[:1])
   if m[0]==3:
    raise
 finally:
  f.close()
 if g&8:
  h={name}.sum(t,-1,z)
  w(b'D'+h)
  i(m[:8])
  if bytes(m[:8])==binascii.hexlify(h)[:8]:
   os.rename(t,p)
"""

# Refuses `n` bytes for which there is no room. The part of an earlier write goes first. A file system of 0 blocks does
# not know how much room it has.
ROOM = """\
 if not o:
  try:
   os.remove(t)
  except OSError:
   pass
 s=os.statvfs(t[:t.rfind('/')]or'/')
 if s[2]and n>s[1]*s[3]:
  raise OSError('ENOSPC %d %d'%(n,s[1]*s[3]))
"""

TAKE = " i=sys.stdin.buffer.readinto"
TAKE_IN_TIME = f"""\
 import select
 q=select.poll()
 q.register(sys.stdin,1)
 def i(v):
  if not q.poll({HOST_SECONDS}000):
   raise OSError('ETIMEDOUT')
  sys.stdin.buffer.readinto(v)"""

SUM = """\
def _ff(p,l,z):
 import sys,{module}
 h={start}
 m=memoryview(bytearray(z))
 k=0
 with open(p,'rb') as f:
  while l:
   n=f.readinto(m if l<0 or l>z else m[:l])
   if not n:
    break
   {update}
   l-=n
   k+=1
   if k%32==0:
    sys.stdout.write('.')
 return {result}
"""
SHA256 = {
    "module": "hashlib",
    "start": "hashlib.sha256()",
    "update": "h.update(m[:n])",
    "result": "h.digest()",
}
CRC32 = {
    "module": "binascii",
    "start": "0",
    "update": "h=binascii.crc32(m[:n],h)",
    "result": "(h&0xffffffff).to_bytes(4,'big')",
}

GET = """\
def _ff(p,o,l,z):
 import sys,struct,binascii
 w=sys.stdout.buffer.write
 b=bytearray(z+7)
 m=memoryview(b)
 c=0
 n=1
 with open(p,'rb') as f:
  if o:
   f.seek(o)
  w(b'R')
  while n:
   n=l and f.readinto(m[7:] if l<0 or l>z else m[7:7+l])
   l-=n
   c=binascii.crc32(m[7:7+n],c)&0xffffffff
   struct.pack_into('<BHI',b,0,1,n,c)
   w(m[:n+7])
"""

SHOW = """\
def _ff(a,l,z):
 import {name}
 print('R',end='')
 for p in a:
  print(''.join('%02x'%c for c in {name}.sum(p,l,z)))
"""

TREE = """\
def _ff(p,z):
 import os,sys,{name}
 try:
  import binascii
 except ImportError:
  pass
 sys.stdout.write('R')
 a=[p]
 while a:
  p=a.pop()
  for e in os.ilistdir(p):
   n=(p if p[-1]=='/' else p+'/')+e[0]
   if e[1]&16384:
    if n.count('/')<{depth}:
     a.append(n)
   else:
    try:
     print(repr((n,os.stat(n)[6],{digest})))
    except OSError:
     pass
"""
