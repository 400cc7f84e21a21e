"""The values that some keys of requests can have.

They are apart from `service.requests` because the command line offers the same values, and starts faster if it does not
import the requests.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["sync", "async"]
Format = Literal["csv", "jsonl", "packed", "arrow", "raw"]
SessionFormat = Literal["bytes", "lines", "jsonl", "csv"]
OnError = Literal["skip", "fail"]
# How the bytes of a file are encoded on the line; `auto` is the fastest encoding that the board supports.
Method = Literal["auto", "binary", "base64", "literal"]
