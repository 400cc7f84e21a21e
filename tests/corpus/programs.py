"""Small programs for boards, and what each prints: on the simulated board and on every real one.

What CPython and MicroPython write differently is in `fastflight.simulator.values`. Where the simulated board is not like
a board on purpose, there is no program.
"""

from __future__ import annotations

PROGRAMS: dict[str, tuple[str, str]] = {
    "floats": (
        "print(1.0, 0.1, 1e16, 1e-7, 1e100, 2.5e-5, 123456789.0, 1/3, -0.0, 1e22, 100000.0)",
        "1.0 0.1 1e+16 1e-07 1e+100 2.5e-05 123456789.0 0.3333333333333333 -0.0 1e+22 100000.0\n",
    ),
    "nan": (
        "print(float('nan'), float('inf'), -float('inf'), [float('nan')])",
        "nan inf -inf [nan]\n",
    ),
    "strings": (
        "print(repr('a\\n\\t\\x00\\x7fé\\\\'), repr(\"it's\"), repr('a\"b'), repr('\\'\"'), repr('日本'))",
        "'a\\n\\t\\x00\\x7f\\xe9\\\\' \"it's\" 'a\"b' '\\'\"' '\\u65e5\\u672c'\n",
    ),
    "bytes": (
        "print(b'a\\x00\\xff\\n', bytearray(b'ab'), bytes(3), bytes([1, 2]), bytes('é', 'utf8'))",
        "b'a\\x00\\xff\\n' bytearray(b'ab') b'\\x00\\x00\\x00' b'\\x01\\x02' b'\\xc3\\xa9'\n",
    ),
    "containers": (
        "print([1, 'a', None], (1,), (), {}, {1: 2}, set(), {3}, {'a': [1.5, True]})",
        "[1, 'a', None] (1,) () {} {1: 2} set() {3} {'a': [1.5, True]}\n",
    ),
    "range": (
        "print(range(5), range(1, 10, 2), list(range(3)))",
        "range(0, 5) range(1, 10, 2) [0, 1, 2]\n",
    ),
    "types": (
        "print(int, str, type(1.5), type(None), type([]))",
        "<class 'int'> <class 'str'> <class 'float'> <class 'NoneType'> <class 'list'>\n",
    ),
    "classes": (
        ("class A:\n pass\nclass B(A):\n x = 1\nprint(B.__name__, isinstance(B(), A), issubclass(B, A), A)"),
        "B True True <class 'A'>\n",
    ),
    "exceptions' text": (
        (
            "for e in (ValueError('a'), ValueError(), ValueError(1, 2), OSError(2), TypeError('é')):\n"
            " print(repr(e), e)\n"
            "print(KeyError('k'))"
        ),
        (
            "ValueError('a',) a\n"
            "ValueError() \n"
            "ValueError(1, 2) (1, 2)\n"
            "OSError(2,) [Errno 2] ENOENT\n"
            "TypeError('\\xe9',) é\n"
            "k\n"
        ),
    ),
    "bool": (
        "print(True, not 1, 1 == True, True + 1, repr(None), ...)",
        "True False True 2 None Ellipsis\n",
    ),
    "big ints": (
        "print(2**70, -2**70, 10**20 // 7, 2**70 % 7, hex(2**70), int('1' * 25))",
        "1180591620717411303424 -1180591620717411303424 14285714285714285714 2 0x400000000000000000 1111111111111111111111111\n",
    ),
    "complex": (
        "print(1j, 1+2j, (1+2j)*2, abs(3+4j))",
        "1j (1+2j) (2+4j) 5.0\n",
    ),
    "namedtuple": (
        (
            "from collections import namedtuple\n"
            "P = namedtuple('P', ['x', 'y'])\n"
            "p = P(1, 2)\n"
            "print(p, p.x, p[1], P(y=2, x=1))"
        ),
        "P(x=1, y=2) 1 2 P(x=1, y=2)\n",
    ),
    "ordered": (
        (
            "from collections import OrderedDict, deque\n"
            "print(OrderedDict([('a', 1)]))\n"
            "d = deque((), 3)\n"
            "for i in range(5): d.append(i)\n"
            "print(len(d), d.popleft())"
        ),
        ("OrderedDict({'a': 1})\n3 2\n"),
    ),
    "percent": (
        "print('%d %s %r %x %05d %-5s| %.2f %e %g %c %%' % (5, 'a', 'b', 255, 42, 'ab', 3.14159, 12345.678, 0.0001, 'z'))",
        "5 a 'b' ff 00042 ab   | 3.14 1.234568e+04 0.0001 z %\n",
    ),
    "percent of a tuple": (
        "print('%s' % (1,), '%s %s' % (1, (2,)), '%(a)s' % {'a': 1})",
        "1 1 (2,) 1\n",
    ),
    "format": (
        "print('{} {!r} {:5}|{:<5}|{:>5}|{:^5}|{:05d} {:x} {:b} {:o} {:.2f} {:,}'.format('a', 'b', 'c', 'd', 'e', 'f', 42, 255, 5, 8, 3.14159, 1234567))",
        "a 'b' c    |d    |    e|  f  |00042 ff 101 10 3.14 1,234,567\n",
    ),
    "format None": (
        "print('{}'.format(None), '{:}'.format(None), '{!r}'.format(None), f'{None}')",
        "None None None None\n",
    ),
    "format names 2": (
        "print('{a} {0} {1}'.format(1, 5, a=2))",
        "2 1 5\n",
    ),
    "f-strings": (
        ("x = 3.14159\nprint(f'{x:.2f} {x!r} {{}} {1+1} {\"a\"}')"),
        "3.14 3.14159 {} 2 a\n",
    ),
    "format nan": (
        "print('%f %.1f %d' % (float('nan'), float('inf'), 3), '{:.2f}'.format(float('nan')))",
        "nan inf 3 nan\n",
    ),
    "str of numbers": (
        "print(str(1e5), str(1.5e300), str(-1.0), str(1e15), round(2.5), round(3.5), round(1.25, 1), int(-1.5), int('0x1f', 16), float('1e3'))",
        "100000.0 1.5e+300 -1.0 1000000000000000.0 2 4 1.2 -1 31 1000.0\n",
    ),
    "json": (
        (
            "import json\n"
            "print(json.dumps({'a': [1, 2.5, None, True, 'é\"\\n']}), json.loads('{\"a\": [1, 2.5, null, false]}'))"
        ),
        '{"a": [1, 2.5, null, true, "é\\"\\n"]} {\'a\': [1, 2.5, None, False]}\n',
    ),
    "json nan": (
        ("import json\nprint(json.dumps([float('nan'), float('inf'), -float('inf')]))"),
        "[nan, inf, -inf]\n",
    ),
    "json keys": (
        ("import json\nprint(json.dumps({1: 'a', None: 'b', True: 'c', 1.5: 'd'}))"),
        '{"1": "c", "null": "b", "1.5": "d"}\n',
    ),
    "json tuple": (
        (
            "import json\n"
            "print(json.dumps((1, (2,))), json.dumps([], separators=(',', ':')), json.dumps({'a': 1, 'b': 2}, separators=(',', ':')))"
        ),
        '[1, [2]] [] {"a":1,"b":2}\n',
    ),
    "json bad": (
        (
            "import json\n"
            "for t in ('', '{', 'nul', 'NaN'):\n"
            " try:\n"
            "  print(json.loads(t))\n"
            " except ValueError as e:\n"
            "  print(repr(e))"
        ),
        (
            "ValueError('syntax error in JSON',)\n"
            "ValueError('syntax error in JSON',)\n"
            "ValueError('syntax error in JSON',)\n"
            "ValueError('syntax error in JSON',)\n"
        ),
    ),
    "json control": (
        ("import json\nprint(json.dumps('\\x00\\x1f\\x7f\\u2028'))"),
        ('"\\u0000\\u001f\x7f\u2028"\n'),
    ),
    "json bytes": (
        ("import json\ntry:\n print(json.dumps(b'ab'))\nexcept Exception as e:\n print(type(e).__name__)"),
        '"ab"\n',
    ),
    "json stream": (
        (
            "import json, io\n"
            "s = io.StringIO()\n"
            "json.dump([1, 'a'], s)\n"
            "print(s.getvalue(), json.load(io.StringIO('[3, 4]')))"
        ),
        '[1, "a"] [3, 4]\n',
    ),
    "traceback": (
        ("try:\n 1/0\nexcept ZeroDivisionError as e:\n print(type(e).__name__)"),
        "ZeroDivisionError\n",
    ),
    "errors": (
        (
            "def t(f):\n"
            " try:\n"
            "  f()\n"
            " except Exception as e:\n"
            "  print(type(e).__name__)\n"
            "t(lambda: {}['k'])\n"
            "t(lambda: [][5])\n"
            "t(lambda: int('x'))\n"
            "t(lambda: None.x)\n"
            "t(lambda: nothing)\n"
            "t(lambda: 'a' + 1)\n"
            "t(lambda: (1)())\n"
            "t(lambda: next(iter([])))\n"
            "t(lambda: open('/none/such'))\n"
            "t(lambda: 1 / 0)\n"
            "t(lambda: bytes([256]))"
        ),
        (
            "KeyError\n"
            "IndexError\n"
            "ValueError\n"
            "AttributeError\n"
            "NameError\n"
            "TypeError\n"
            "TypeError\n"
            "StopIteration\n"
            "OSError\n"
            "ZeroDivisionError\n"
            "ValueError\n"
        ),
    ),
    "finally": (
        (
            "def f():\n"
            " try:\n"
            "  return 1\n"
            " finally:\n"
            "  print('end')\n"
            "print(f())\n"
            "try:\n"
            " raise ValueError('x') from None\n"
            "except ValueError as e:\n"
            " print(repr(e))"
        ),
        ("end\n1\nValueError('x',)\n"),
    ),
    "os error": (
        (
            "import errno\n"
            "try:\n"
            " open('/none.such')\n"
            "except OSError as e:\n"
            " print(type(e).__name__, len(e.args), type(e.errno))"
        ),
        "OSError 1 <class 'int'>\n",
    ),
    "system exit": (
        ("try:\n raise SystemExit(3)\nexcept SystemExit as e:\n print(repr(e), e.args)"),
        "SystemExit(3,) (3,)\n",
    ),
    "import error": (
        ("try:\n import nothing_such\nexcept ImportError as e:\n print(repr(e))"),
        "ImportError(\"no module named 'nothing_such'\",)\n",
    ),
    "string methods": (
        (
            "s = ' One two, Three '\n"
            "print(s.strip(), s.lower(), s.upper(), s.split(), s.split(','), s.find('two'), s.rfind('e'), s.count('e'), s.replace('e', '3'), s.startswith(' O'), s.endswith('x'))"
        ),
        "One two, Three  one two, three   ONE TWO, THREE  ['One', 'two,', 'Three'] [' One two', ' Three '] 5 14 3  On3 two, Thr33  True False\n",
    ),
    "more methods": (
        "print('a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), '-'.join(['a', 'b']), 'abc'.isalpha(), '12'.isdigit(), ' '.isspace(), 'aB'.isupper(), 'x'.center(5), 'a,b,,c'.split(',', 1), 'a\\nb\\r\\nc'.splitlines())",
        "('a', '-', 'b-c') ('a-b', '-', 'c') a-b True True True False   x   ['a', 'b,,c'] ['a', 'b', 'c']\n",
    ),
    "bytes methods": (
        (
            "b = b'a,b'\n"
            "print(b.split(b','), b.find(b','), b.decode(), b[0], b[1:], b'%d' % 5 if False else '', b + b'c', b.upper(), b.hex(), bytes.fromhex('0aff'), b'a' in b)"
        ),
        "[b'a', b'b'] 1 a,b 97 b',b'  b'a,bc' b'A,B' 612c62 b'\\n\\xff' True\n",
    ),
    "int methods": (
        "print((255).to_bytes(2, 'big'), int.from_bytes(b'\\x01\\x00', 'little'), (1000).to_bytes(4, 'little'))",
        "b'\\x00\\xff' 1 b'\\xe8\\x03\\x00\\x00'\n",
    ),
    "sorting": (
        "print(sorted([3, 1, 2], reverse=True), sorted('bca'), sorted([-3, 2], key=abs), min(3, 1), max([1, 5]), sum([1, 2]), list(zip([1], [2])), list(map(abs, [-1])), list(enumerate('a')), any([]), all([]))",
        "[3, 2, 1] ['a', 'b', 'c'] [2, -3] 1 5 3 [(1, 2)] [1] [(0, 'a')] False True\n",
    ),
    "comprehensions": (
        "print({x: x*x for x in range(3)}, {x % 2 for x in range(5)}, [x for x in 'ab' if x != 'a'], sum(x for x in range(4)))",
        "{0: 0, 1: 1, 2: 4} {0, 1} ['b'] 6\n",
    ),
    "generators": (
        ("def g():\n x = yield 1\n print('got', x)\n yield 2\nh = g()\nprint(next(h), h.send('v'), list(h))"),
        ("got v\n1 2 []\n"),
    ),
    "closures": (
        ("def f():\n n = 0\n def g():\n  nonlocal n\n  n += 1\n  return n\n return g\ng = f()\ng()\nprint(g())"),
        "2\n",
    ),
    "properties": (
        (
            "class A:\n"
            " def __init__(self): self._x = 1\n"
            " @property\n"
            " def x(self): return self._x\n"
            " @staticmethod\n"
            " def s(): return 's'\n"
            " @classmethod\n"
            " def c(cls): return cls.__name__\n"
            " def __repr__(self): return 'A!'\n"
            " def __eq__(self, o): return True\n"
            " def __len__(self): return 7\n"
            " def __getitem__(self, k): return k\n"
            " def __call__(self): return 'called'\n"
            "a = A()\n"
            "print(a, a.x, A.s(), a.c(), a == 1, len(a), a[3], a())"
        ),
        "A! 1 s A True 7 3 called\n",
    ),
    "walrus": (
        "if (n := 5) > 3: print(n)",
        "5\n",
    ),
    "dict order": (
        (
            "d = {}\n"
            "for k in 'zyx': d[k] = 1\n"
            "print(len(d), sorted(d), 'z' in d, d.get('q'), d.setdefault('w', 2), d.pop('z'))"
        ),
        "3 ['x', 'y', 'z'] True None 2 1\n",
    ),
    "os": (
        (
            "import os\n"
            "os.mkdir('q_d')\n"
            "with open('q_d/f', 'w') as f: f.write('abc')\n"
            "print(os.listdir('q_d'), len(os.stat('q_d/f')), os.stat('q_d')[0] & 0x4000, [e[:2] for e in os.ilistdir('q_d')])\n"
            "os.rename('q_d/f', 'q_d/g')\n"
            "print(os.listdir('q_d'))\n"
            "os.remove('q_d/g')\n"
            "os.rmdir('q_d')\n"
            "try:\n"
            " os.stat('q_d')\n"
            "except OSError:\n"
            " print('gone')"
        ),
        ("['f'] 10 16384 [('f', 32768)]\n['g']\ngone\n"),
    ),
    "os values": (
        (
            "import os\n"
            "print(len(os.stat('/')), len(os.statvfs('/')), os.getcwd()[0], os.sep if hasattr(os, 'sep') else '/')"
        ),
        "10 10 / /\n",
    ),
    "files": (
        (
            "with open('q_f', 'w') as f:\n"
            " print(f.write('een\\ntwee\\n'), f.tell())\n"
            "with open('q_f') as f:\n"
            " print(f.readline(), f.read(), f.seek(0), f.readlines())\n"
            "with open('q_f', 'rb') as f:\n"
            " b = bytearray(3)\n"
            " print(f.readinto(b), b, f.read(2))\n"
            "with open('q_f', 'a') as f:\n"
            " f.write('x')\n"
            "with open('q_f', 'r+b') as f:\n"
            " f.seek(-1, 2)\n"
            " print(f.read())\n"
            "import os\n"
            "os.remove('q_f')"
        ),
        ("9 9\neen\n twee\n 0 ['een\\n', 'twee\\n']\n3 bytearray(b'een') b'\\nt'\nb'x'\n"),
    ),
    "closed file": (
        (
            "f = open('q_f', 'w')\n"
            "f.close()\n"
            "try:\n"
            " f.write('x')\n"
            "except Exception as e:\n"
            " print(type(e).__name__)\n"
            "import os\n"
            "os.remove('q_f')"
        ),
        "ValueError\n",
    ),
    "struct": (
        (
            "import struct\n"
            "print(struct.pack('<IhBf', 1, -2, 3, 0.5), struct.unpack('>H', b'\\x01\\x02'), struct.calcsize('<Ihx'))"
        ),
        "b'\\x01\\x00\\x00\\x00\\xfe\\xff\\x03\\x00\\x00\\x00?' (258,) 7\n",
    ),
    "hashlib": (
        (
            "import hashlib\n"
            "h = hashlib.sha256(b'a')\n"
            "h.update(b'b')\n"
            "import binascii\n"
            "print(binascii.hexlify(h.digest()), hasattr(h, 'hexdigest'))"
        ),
        "b'fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603' False\n",
    ),
    "re": (
        (
            "import re\n"
            "m = re.search('(\\\\d+)-(\\\\w)', 'x12-b')\n"
            "print(m.group(0), m.group(1), re.match('a', 'b'), re.sub('a', 'b', 'aa'), re.compile('[,;]').split('a,b;c'))"
        ),
        "12-b 12 None bb ['a', 'b', 'c']\n",
    ),
    "math": (
        (
            "import math\n"
            "print(math.pi, math.sqrt(2), math.floor(-1.5), math.ceil(1.2), math.trunc(1.9), math.isnan(math.nan) if hasattr(math, 'nan') else '', round(math.sin(1), 6), math.log(10))"
        ),
        "3.141592653589793 1.4142135623730951 -2 2 1 True 0.841471 2.302585092994046\n",
    ),
    "time": (
        (
            "import time\n"
            "print(time.ticks_diff(5, 3), time.ticks_diff(time.ticks_add(5, -7), 5), time.localtime(0)[:3], time.gmtime(86400)[:6])"
        ),
        "2 -7 (1970, 1, 1) (1970, 1, 2, 0, 0, 0)\n",
    ),
    "io": (
        (
            "import io\n"
            "b = io.BytesIO(b'abc')\n"
            "print(b.read(1), b.read(), b.getvalue())\n"
            "s = io.StringIO()\n"
            "print('x', 1, file=s, sep='-', end='!')\n"
            "print(s.getvalue())"
        ),
        ("b'a' b'bc' b'abc'\nx-1!\n"),
    ),
    "array": (
        ("from array import array\na = array('h', [1, -2])\na.append(3)\nprint(a, a[1], len(a), bytes(a))"),
        "array('h', [1, -2, 3]) -2 3 b'\\x01\\x00\\xfe\\xff\\x03\\x00'\n",
    ),
    "memoryview": (
        ("m = memoryview(bytearray(b'abcd'))\nm[1:3] = b'XY'\nprint(bytes(m), len(m), bytes(m[2:]))"),
        "b'aXYd' 4 b'Yd'\n",
    ),
    "sys": (
        (
            "import sys\n"
            "print(sys.implementation.name, sys.byteorder, sys.maxsize > 2**29, sys.version_info[:2], type(sys.argv), sys.path[0])"
        ),
        "micropython little True (3, 4) <class 'list'> \n",
    ),
    "gc": (
        ("import gc\ngc.collect()\nprint(gc.mem_free() > 0, gc.mem_alloc() > 0, gc.isenabled())"),
        "True True True\n",
    ),
    "errno": (
        (
            "import errno\n"
            "print(sorted(n for n in ('ENOENT', 'EEXIST', 'EACCES', 'ENODEV', 'EISDIR', 'EINVAL', 'EIO', 'ETIMEDOUT', 'EAGAIN') if hasattr(errno, n)))"
        ),
        "['EACCES', 'EAGAIN', 'EEXIST', 'EINVAL', 'EIO', 'EISDIR', 'ENODEV', 'ENOENT', 'ETIMEDOUT']\n",
    ),
    "random": (
        (
            "import random\n"
            "random.seed(1)\n"
            "print(0 <= random.getrandbits(8) < 256, 1 <= random.randint(1, 6) <= 6, 0 <= random.random() < 1, random.choice([7]))"
        ),
        "True True True 7\n",
    ),
    "heapq": (
        ("import heapq\nh = []\nfor x in (3, 1, 2): heapq.heappush(h, x)\nprint(heapq.heappop(h), h)"),
        "1 [2, 3]\n",
    ),
    "select": (
        ("import select\np = select.poll()\nprint(p.poll(0), select.POLLIN)"),
        "[] 1\n",
    ),
    "deflate": (
        (
            "import deflate, io\n"
            "s = io.BytesIO()\n"
            "d = deflate.DeflateIO(io.BytesIO(bytes.fromhex('789c4b4c4a06000' + '24d0127')), deflate.ZLIB)\n"
            "print(d.read())"
        ),
        "b'abc'\n",
    ),
    "print": (
        ("print(1, 2, sep='')\nprint('a', end='')\nprint()\nprint(None, True, sep=', ')\nprint(*[])"),
        ("12\na\nNone, True\n\n"),
    ),
    "print objects": (
        "print(object, [object][0], 'a'.upper is not None)",
        "<class 'object'> <class 'object'> True\n",
    ),
    "input less": (
        "print(callable(input), eval('1+1'), exec('x=5'), x)",
        "True 2 None 5\n",
    ),
    "globals": (
        ("q = 1\nprint('q' in globals(), __name__, type(globals()))"),
        "True __main__ <class 'dict'>\n",
    ),
    "dir": (
        ("class A:\n x = 1\nprint('x' in dir(A), hasattr(A, 'y'), getattr(A, 'y', 3))"),
        "True False 3\n",
    ),
    "id": (
        ("a = []\nprint(id(a) == id(a), a is a, hash('a') == hash('a'))"),
        "True True True\n",
    ),
    "int parse": (
        "print(int('12'), int(' 12 '), int('-5'), int('ff', 16), int('0b11', 0), int(3.9), int(b'7'))",
        "12 12 -5 255 3 3 7\n",
    ),
    "chr": (
        "print(chr(233), ord('é'), bin(5), oct(8), hex(-255))",
        "é 233 0b101 0o10 -0xff\n",
    ),
    "divmod": (
        "print(divmod(-7, 2), -7 // 2, -7 % 2, 7.5 % 2, -7.5 // 2, 2 ** -1, pow(2, 10), pow(3, 4, 5), abs(-2.5))",
        "(-4, 1) -4 1 1.5 -4.0 0.5 1024 1 2.5\n",
    ),
    "shift": (
        "print(1 << 40, -8 >> 1, 5 & 3, 5 | 3, 5 ^ 3, ~5)",
        "1099511627776 -4 1 7 6 -6\n",
    ),
    "compare": (
        "print((1, 2) < (1, 3), 'a' < 'b', [1] == [1], 1 == 1.0, {1} == {1}, None == 0)",
        "True True True True True False\n",
    ),
    "is": (
        "print(1 in [1], 'b' in 'abc', 5 not in (1,), not [], bool(''), bool(0.0))",
        "True True True True False False\n",
    ),
    "lambda repr": (
        ("f = lambda: 0\ndef g(): pass\nprint(str(f)[:9], str(g)[:11])"),
        "<function <function g\n",
    ),
    "str of type error": (
        ("try:\n int()\n int([])\nexcept TypeError as e:\n print('TypeError')"),
        "TypeError\n",
    ),
    "unicode": (
        ("s = 'aé日😀'\nprint(len(s), s[1], s[-1], s.encode(), list(s), [s])"),
        "4 é 😀 b'a\\xc3\\xa9\\xe6\\x97\\xa5\\xf0\\x9f\\x98\\x80' ['a', '\\xe9', '\\u65e5', '\\U0001f600'] ['a\\xe9\\u65e5\\U0001f600']\n",
    ),
    "const": (
        ("from micropython import const\n_X = const(3)\nprint(_X)"),
        "3\n",
    ),
    "kw only": (
        (
            "def f(a, *, b=2): return a, b\n"
            "print(f(1), f(1, b=3))\n"
            "try:\n"
            " f(1, 2)\n"
            "except TypeError:\n"
            " print('TypeError')"
        ),
        ("(1, 2) (1, 3)\nTypeError\n"),
    ),
    "print_exception": (
        (
            "import sys, io\n"
            "s = io.StringIO()\n"
            "try:\n"
            " raise ValueError('x')\n"
            "except ValueError as e:\n"
            " sys.print_exception(e, s)\n"
            "print(s.getvalue().splitlines()[-1])"
        ),
        "ValueError: x\n",
    ),
    "error values": (
        (
            "for f in (lambda: {}['k'], lambda: [][5], lambda: [].pop(), lambda: chr(-1)):\n"
            " try:\n"
            "  f()\n"
            " except Exception as e:\n"
            "  print(repr(e))"
        ),
        (
            "KeyError('k',)\n"
            "IndexError('list index out of range',)\n"
            "IndexError('pop from empty list',)\n"
            "ValueError('chr() arg not in range(0x110000)',)\n"
        ),
    ),
    "traceback values": (
        ("import sys\ntry:\n raise ValueError(['é', None])\nexcept ValueError as e:\n print(repr(e), e)"),
        "ValueError(['\\xe9', None],) ['\\xe9', None]\n",
    ),
    "set": (
        "print(repr({'é'}), frozenset([1]), {('a',): {'b': ('é', 1.5)}})",
        "{'\\xe9'} frozenset({1}) {('a',): {'b': ('\\xe9', 1.5)}}\n",
    ),
}
