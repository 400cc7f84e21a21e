"""MicroPython's unix port as a board: `python unix_port.py FOLDER PROGRAM` becomes PROGRAM, confined to FOLDER.

For the board's code `/` is a littlefs, as on most boards, in the file `flash` of FOLDER. It is mounted before the
prompt appears, so nothing else of this computer can be reached by a path. Landlock, where the kernel has it, takes from
the process the right to change anything else. `boot.py` runs at each start, and `main.py` with `--main`, as on a board.
"""

from __future__ import annotations

import ctypes
import os
import sys

from fastflight.simulator import landlock

PR_SET_NO_NEW_PRIVS = 38
BLOCK_BYTES, BLOCKS = 4096, 128
# Runs in a dictionary of its own, so the board's variables are empty at the prompt.
MOUNT = """\
import os
class Flash:
 def __init__(s,p):
  try:
   s.f=open(p,'r+b')
  except OSError:
   s.f=open(p,'w+b')
 def readblocks(s,n,b,o=0):
  s.f.seek(n*{size}+o)
  s.f.readinto(b)
 def writeblocks(s,n,b,o=0):
  s.f.seek(n*{size}+o)
  s.f.write(b)
 def ioctl(s,k,a):
  if k==3:
   s.f.flush()
  return {blocks} if k==4 else {size} if k==5 else 0
flash=Flash({path!r})
options={{'readsize':256,'progsize':256}}
try:
 disk=os.VfsLfs2(flash,**options)
except OSError:
 flash.f.seek({size}*{blocks}-1)
 flash.f.write(b'\\xff')
 os.VfsLfs2.mkfs(flash,**options)
 disk=os.VfsLfs2(flash,**options)
os.umount('/')
os.mount(disk,'/')
os.chdir('/')
# Clears the flag by which an `exec:` port sees that a child handles its terminal: from now on, and not before its disk
# is there, Ctrl-C comes as a signal. The port itself clears the flag at its prompt, after `main.py`.
os.system('stty -echoe 2>/dev/null')
"""
RUN = """\
try:
 exec(open({name!r}).read())
except OSError:
 pass
except BaseException as _:
 __import__('sys').print_exception(_)
"""


def confine(folder: str) -> None:
    """Let this process, and what it becomes, read everything and change only `folder`."""
    if not landlock.version():
        return
    if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError("prctl failed")
    read = landlock.READ | landlock.EXECUTE
    devices = landlock.READ | landlock.WRITE_FILE | landlock.IOCTL_DEV
    landlock.restrict({"/": read, "/dev": devices, folder: landlock.CHANGE})


def main(folder: str, program: str, *options: str) -> None:
    code = MOUNT.format(path=os.path.join(folder, "flash"), size=BLOCK_BYTES, blocks=BLOCKS)
    programs = ("boot.py", "main.py") if "--main" in options else ("boot.py",)
    code = f"exec({code!r},{{}})\n" + "".join(RUN.format(name=name) for name in programs)
    confine(folder)
    os.execv(program, [program, "-i", "-c", code])


if __name__ == "__main__":
    main(*sys.argv[1:])
