"""The values that some keys of requests can have, and limits of requests.

They are apart from `service.requests` because the command line uses them too, and starts faster if it does not import
the requests.
"""

from __future__ import annotations

import re
from typing import Literal

Mode = Literal["sync", "async"]
Format = Literal["csv", "jsonl", "packed", "arrow", "raw"]
SessionFormat = Literal["bytes", "lines", "jsonl", "csv"]
# How a recording is read, other than by its format: as the typed rows that its device prints.
RecordedAs = Literal["rows"]
# What decides the types of a text file's columns, if no schema does.
Infer = Literal["file", "sample"]
# The character before the fraction of a number.
Decimal = Literal[".", ","]
OnError = Literal["skip", "fail"]
# How the bytes of a file are encoded on the line; `auto` is the fastest encoding that the board supports.
Method = Literal["auto", "binary", "base64", "literal"]

# The names that devices, and so their recordings, can have: without the characters of `DEVICE:PATH` and of globs.
DEVICE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")

# A ticket is a request, not a payload: the largest sensible one holds some code to execute.
MAX_REQUEST_BYTES = 256 * 1024
# Names in one request: more do not fit into `MAX_REQUEST_BYTES` anyway. A larger tree takes several requests.
MAX_FILES = 10_000
# The prefix of temporary files, which an interrupted write leaves on a device. They are not part of a tree.
LEFT_BEHIND = ".fastflight-"
