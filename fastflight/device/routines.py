r"""What runs on the board to move files: MicroPython source, as small as it can be.

Each text defines one function `_ff`, which `resident` keeps on the board under a name of its own. A routine that talks
begins with `R`, or raises. `{name}` is the global that holds all routines; what else is in braces depends on what the
board can do.

`put(path, part, offset, size, step)` takes blocks (`frames`) into the file `part`, from `offset` on. Every `step`
bytes are answered by `A`, the last ones of a block when it is written; a failure by `E`, the traceback and `\x04`. What
still comes then is thrown away until Ctrl-C, lest it be taken for code; each Ctrl-A of it is answered by `E`
(`remains`). Some ports, such as unix, do not let Ctrl-C interrupt code that reads its input: it is a byte there.
Content has no such byte (`frames`), so it ends a step too, and a host that recovers such a board sends enough of them
to fill one (`RawRepl.recover`). At the end come the part's digest, as read back from the storage, and, for an answer
that begins it in hexadecimal (8 characters), the renaming: a board that lost bytes may take some of a block for the
end, and the next ones for the answer, and must not put a file in its place for that.

`get(path, offset, count, size)` sends blocks: a kind (1 as it is, 2 deflated), a length (2 bytes) and a crc32
(4 bytes), both little endian, and the bytes. Each crc32 goes on from the one before, and an empty block is the last: a
line that loses whole blocks, or all that is left, is found out. A negative count means all.

`zget` does so too, and deflates blocks that shrink by an eighth. After a block that does not it sends ever more of them
as they are, without trying.

`sum(path, count, size)` gives the digest of a file or its first `count` bytes, and writes a dot now and then.

`show(paths, count, size)` prints it in hexadecimal, a line for each path.

`tree(path, size)` prints a line for each file below `path`: name, size and digest.
"""

from __future__ import annotations

# How long a board waits for a host that is gone before it gives up by itself. Between two bytes of one step nothing
# but Ctrl-C ends the waiting.
HOST_SECONDS = 30

PUT = """\
def _ff(p,t,o,z,k):
 import os,sys,binascii
 try:
  d=os.stat(p)[0]&16384
 except (OSError,AttributeError):
  d=0
 if d:
  raise OSError('EISDIR')
 if o and os.stat(t)[6]!=o:
  raise OSError('ESTALE')
 f=open(t,'ab'if o else'wb')
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
   if m[0]==1:
    w(b'E')
 finally:
  f.close()
 if g&8:
  h={name}.sum(t,-1,z)
  w(b'D'+h)
  i(m[:8])
  if bytes(m[:8])==binascii.hexlify(h)[:8]:
   os.rename(t,p)
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
    {sign}
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
ZGET = """\
def _ff(p,o,l,z):
 import sys,struct,binascii,io,deflate
 w=sys.stdout.buffer.write
 m=memoryview(bytearray(z))
 j=s=c=0
 n=1
 with open(p,'rb') as f:
  if o:
   f.seek(o)
  w(b'R')
  while n:
   n=l and f.readinto(m if l<0 or l>z else m[:l])
   l-=n
   x=m[:n]
   g=1
   if j or not n:
    j-=1
   else:
    y=io.BytesIO()
    d=deflate.DeflateIO(y,deflate.RAW,10)
    d.write(x)
    d.close()
    y=y.getvalue()
    if len(y)*8<n*7:
     x=y
     g=2
     s=0
    else:
     j=s=min(2*s+1,31)
   c=binascii.crc32(x,c)&0xffffffff
   w(struct.pack('<BHI',g,len(x),c))
   w(x)
"""

SHOW = """\
def _ff(a,l,z):
 print('R',end='')
 for p in a:
  print(''.join('%02x'%c for c in {name}.sum(p,l,z)))
"""

TREE = """\
def _ff(p,z):
 import os,sys
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
