"""Modules that compute: binascii, hashlib, json, struct, math, random, collections, heapq, re, array, deflate."""

from __future__ import annotations

import array
import binascii
import collections
import hashlib
import heapq
import math
import random
import re
import struct
from typing import TYPE_CHECKING, Any

from fastflight.simulator.modules.deflate import AUTO, GZIP, RAW, ZLIB, DeflateIO
from fastflight.simulator.values import from_json, to_json

if TYPE_CHECKING:
    from fastflight.simulator.runtime import Runtime

MATH = """
    acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees e erf erfc exp expm1 fabs factorial floor
    fmod frexp gamma inf isclose isfinite isinf isnan ldexp lgamma log log10 log2 modf nan pi pow radians sin sinh
    sqrt tan tanh tau trunc
""".split()


def contents(runtime: Runtime) -> dict[str, dict[str, Any]]:
    """Return the attributes of each module, by module name."""
    numbers = random.Random()
    return {
        "array": {"array": array.array},
        "binascii": {
            "a2b_base64": binascii.a2b_base64,
            "b2a_base64": binascii.b2a_base64,
            "crc32": binascii.crc32,
            "hexlify": binascii.hexlify,
            "unhexlify": binascii.unhexlify,
        },
        "collections": {
            "OrderedDict": collections.OrderedDict,
            "deque": lambda items, maxlen, flags=0: collections.deque(items, maxlen),
            "namedtuple": lambda name, fields: collections.namedtuple(name, fields, module="__main__"),
        },
        "deflate": {"AUTO": AUTO, "RAW": RAW, "ZLIB": ZLIB, "GZIP": GZIP, "DeflateIO": DeflateIO},
        "hashlib": {"sha256": Hash.of("sha256"), "sha1": Hash.of("sha1"), "md5": Hash.of("md5")},
        "heapq": {"heapify": heapq.heapify, "heappop": heapq.heappop, "heappush": heapq.heappush},
        "json": {
            "dump": lambda value, stream, *separators, **named: stream.write(to_json(value, *separators, **named)),
            "dumps": to_json,
            "load": lambda stream: from_json(stream.read()),
            "loads": from_json,
        },
        "math": {name: getattr(math, name) for name in MATH},
        "random": {
            name: getattr(numbers, name)
            for name in ("choice", "getrandbits", "randint", "random", "randrange", "seed", "uniform")
        },
        "re": {"compile": re.compile, "match": re.match, "search": re.search, "sub": re.sub},
        "struct": {
            "calcsize": struct.calcsize,
            "pack": struct.pack,
            "pack_into": struct.pack_into,
            "unpack": struct.unpack,
            "unpack_from": struct.unpack_from,
        },
    }


class Hash:
    """A hash of `hashlib`. Like a board's it has `update` and `digest`, but no `hexdigest`."""

    algorithm = ""

    @classmethod
    def of(cls, name: str) -> type[Hash]:
        return type(name, (cls,), {"algorithm": name})

    def __init__(self, data: Any = b"") -> None:
        self._state = hashlib.new(self.algorithm, data)

    def update(self, data: Any) -> None:
        self._state.update(data)

    def digest(self) -> bytes:
        return self._state.digest()
