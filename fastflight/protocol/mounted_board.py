"""The board's side of a mounted folder: the code that it runs, and what is typed at its prompt. See `mount`."""

from __future__ import annotations

from dataclasses import dataclass

from fastflight.own_code import wrap

# Two steps are less than the receive buffer of a board, which on samd has 128 bytes and elsewhere at least 256.
STEP, SMALL_STEP = 120, 56
SMALL_BUFFERS = ("samd",)
# Bytes of a file in one answer, and the window of the board's inflate as a power of two, by the free memory. The board
# holds the answer twice.
PIECES = ((100_000, 4096, 12), (50_000, 2048, 11), (20_000, 1024, 10))
SMALL_PIECE = (512, 10)
# Puts the module `_ffmount` into `sys.modules`, so that the program has its names for itself: `start()` mounts and goes
# there, `stop()` undoes that, `run(names)` does both with the user's `code` between.
BOARD = r"""
def _ffmount(piece,step,window):
 import os,sys,io,binascii
 poll=None
 try:
  import select
  poll=select.poll()
  poll.register(sys.stdin,1)
 except Exception:
  pass
 write=sys.stdout.buffer.write
 take=sys.stdin.buffer.readinto
 room=memoryview(bytearray(22+piece*5//4))
 def tell(*a):
  q=repr(a).encode()
  write(('\x1b_ff%08x'%(binascii.crc32(q)&0xffffffff)).encode()+q+b'\x1b\\')
 def fill(m):
  if poll and not poll.poll(5000):
   raise ValueError
  take(m)
 def ask(*a):
  for i in range(3):
   tell(*a)
   try:
    fill(room[:22])
    h=str(bytes(room[:22]),'ascii')
    k,n,c,z=h[0],int(h[1:5],16),int(h[5:13],16),int(h[13:21],16)
    i=0
    while i<n:
     j=min(n,i+step)
     fill(room[i:j])
     i=j
     if i<n:
      write(b'\x1b_ffa\x1b\\')
    x=bytes(room[:n])
    for e in b'\x01\x02\x03\x04\x05\n\r\x10':
     x=x.replace(bytes((16,e+64)),bytes((e,)))
    if k=='D':
     import deflate
     x=deflate.DeflateIO(io.BytesIO(x),deflate.RAW,window).read()
    if k!='X' and binascii.crc32(x)&0xffffffff==c:
     break
   except ValueError:
    pass
   while poll and poll.poll(200):
    take(room[:1])
  else:
   raise OSError(5)
  if k=='E':
   raise OSError(int(x))
  return x,z
 n=0
 def do(k,*a):
  nonlocal n
  n+=1
  return ask(k,n,*a)
 opened=[]
 class File(io.IOBase):
  def __init__(s,p,m):
   s.p=p
   s.t='b' not in m
   s.o=s.a=0
   s.w=None
   if set(m)&set('wax+'):
    s.d=b''
    h,s.z=do('o',p,m)
    s.p=int(h)
    s.w=bytearray()
    if 'a' in m:
     s.o=s.z
    opened.append(s)
   else:
    s.d,s.z=ask('r',p,0)
  def __enter__(s):
   return s
  def __exit__(s,*e):
   s.close()
  def close(s):
   if s in opened:
    opened.remove(s)
    s.flush()
    s.w=None
    do('c',s.p)
  def flush(s):
   if s.w:
    w=s.w
    s.w=bytearray()
    s.d=b''
    do('d',s.p,s.o-len(w),binascii.b2a_base64(w)[:-1])
    s.z=max(s.z,s.o)
  def write(s,b):
   if s.w is None:
    raise OSError(9)
   m=memoryview(b.encode() if isinstance(b,str) else b)
   i=0
   while i<len(m):
    c=bytes(m[i:i+512-len(s.w)])
    s.w+=c
    i+=len(c)
    s.o+=len(c)
    if len(s.w)==512:
     s.flush()
   return i
  def tell(s):
   return s.o
  def seek(s,o,w=0):
   s.flush()
   s.o=max(0,o+(0,s.o,s.z)[w])
   return s.o
  def ioctl(s,r,a):
   if r==4:
    s.close()
   elif r==1:
    s.flush()
   return 249 if r==11 else 0 if r in (1,4) else -1
  def more(s):
   s.flush()
   i=s.o-s.a
   if not 0<=i<len(s.d):
    if s.o>=s.z:
     return b''
    s.d,s.z=ask('r',s.p,s.o)
    s.a=s.o
    i=0
   return memoryview(s.d)[i:]
  def readinto(s,b):
   i=0
   while i<len(b):
    m=s.more()
    n=min(len(b)-i,len(m))
    if not n:
     break
    b[i:i+n]=m[:n]
    i+=n
    s.o+=n
   return i
  def get(s,n,line=0):
   r=b''
   while n<0 or len(r)<n:
    m=bytes(s.more())
    if n>=0:
     m=m[:n-len(r)]
    if line and b'\n' in m:
     m=m[:m.find(b'\n')+1]
     n=0
    if not m:
     break
    r+=m
    s.o+=len(m)
   return str(r,'utf-8') if s.t else r
  def read(s,n=-1):
   return s.get(-1 if n is None else n)
  def readline(s,n=-1):
   return s.get(n,1)
  def readlines(s):
   return list(s)
  def __iter__(s):
   return s
  def __next__(s):
   l=s.readline()
   if not l:
    raise StopIteration
   return l
 class Folder:
  p='/'
  def mount(s,*a):
   pass
  def umount(s):
   pass
  def j(s,p):
   return p if p[:1]=='/' else s.p+p
  def chdir(s,p):
   p=s.j(p)
   if p!='/' and not s.stat(p)[0]&16384:
    raise OSError(20)
   s.p=p if p[-1]=='/' else p+'/'
  def getcwd(s):
   return s.p
  def stat(s,p):
   k,z,t=eval(ask('s',s.j(p))[0])
   return (k,0,0,0,0,0,z,t,t,t)
  def statvfs(s,p):
   return (4096,4096,0,0,0,0,0,0,1,255)
  def ilistdir(s,p):
   n=0
   while 1:
    l=eval(ask('l',s.j(p),n)[0])
    if not l:
     break
    n+=len(l)
    for e in l:
     yield e
  def open(s,p,m):
   return File(s.j(p),m)
  def remove(s,p):
   do('u',s.j(p))
  def mkdir(s,p):
   do('m',s.j(p))
  def rmdir(s,p):
   do('k',s.j(p))
  def rename(s,p,q):
   do('v',s.j(p),s.j(q))
 class It:
  def start(s):
   s.was=os.getcwd()
   os.mount(Folder(),'/remote')
   os.chdir('/remote')
   tell('b')
  def stop(s,ok=1):
   try:
    while opened:
     opened[-1].close()
   except OSError as e:
    ok=0
    sys.print_exception(e)
   os.chdir(s.was)
   os.umount('/remote')
   tell('e',ok)
  def run(s,names):
   s.start()
   ok=0
   try:
    exec(s.code,names)
    ok=1
   except BaseException as e:
    sys.print_exception(e)
   s.stop(ok)
 return It()
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of a file goes into an answer, the size of a step, and the window of deflate as a power of two."""

    piece: int
    step: int
    window: int


def sizes_for(free_memory: int, platform: str) -> Sizes:
    """Return the sizes for a board with this much free memory and this `sys.platform`."""
    piece, window = next((sizes for least, *sizes in PIECES if free_memory >= least), SMALL_PIECE)
    return Sizes(piece, SMALL_STEP if platform.startswith(SMALL_BUFFERS) else STEP, window)


def install_code(sizes: Sizes, code: str) -> str:
    """Return code that prepares a board. It mounts nothing yet, because nobody answers its questions yet."""
    made = f"m=_ffmount({sizes.piece},{sizes.step},{sizes.window})\nm.code={code!r}\n"
    return wrap(f"{BOARD}\n{made}import sys\nsys.modules['_ffmount']=m\n".encode()).decode()


# What is typed at the board's prompt: to begin, and to end even if a reset has removed everything. Each line is shorter
# than the smallest receive buffer, 128 bytes, because a program that cleans up before it ends reads nothing.
MOUNTED = b"__import__('sys').modules['_ffmount']"
START_LINE = MOUNTED + b".start()\r"
RUN_LINE = MOUNTED + b".run(globals())\r"
# The board's string literal has the code of `print('\x1b_ffz\x1b\\')`: its backslashes are written twice.
STOP_LINE = b'exec("try:\\n ' + MOUNTED + rb""".stop()\nexcept Exception:\n print('\x1b_ffz\x1b\\\\')")""" + b"\r"
# What the prompt shows of it.
STOP_ECHO = STOP_LINE[:-1]
# Drops input that is not complete, and interrupts the program that runs. One is enough for a program that cleans up.
# Nothing comes before it: a receive buffer may have only one place left. More end a program that catches it.
CTRL_C = b"\x03"
