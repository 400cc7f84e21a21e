"""The endings of file names that stand for formats. Loads no Arrow: commands that copy bytes use them too."""

from __future__ import annotations

from pathlib import PurePosixPath

# Only for local files: its index is at its end, so it can be neither sent nor read piece by piece.
PARQUET = ".parquet"
# Only for local files that are written.
MCAP = ".mcap"
_ENDINGS = {
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "arrow": "arrow",
    "arrows": "arrow",
    "ipc": "arrow",
}


def format_of(path: str) -> str:
    """Return the format that the ending of `path` stands for; `raw` for any other ending."""
    name = path.rpartition("/")[2]
    _, dot, ending = name.rpartition(".")
    return _ENDINGS.get(ending.lower(), "raw") if dot else "raw"


def is_table(path: str) -> bool:
    """Whether a file's ending is that of a table format."""
    return ending_of(path) == PARQUET or format_of(path) != "raw"


def copied_as_is(source: str, target: str) -> bool:
    """Whether a copy from one name to the other is no conversion: same endings, or the target's is not a table's."""
    ending = ending_of(target)
    return ending == ending_of(source) or not (is_table(target) or ending == MCAP)


def ending_of(path: str) -> str:
    """Return the last ending of a path in lower case, as in `.csv`; empty if it has none."""
    return PurePosixPath(path).suffix.lower()
