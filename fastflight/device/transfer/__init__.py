"""Moves files between a host and a board.

`OpenBoard` starts the transfers. Each is a conversation: `upload` writes one file, `tree` writes many, `download` reads
one, and `digest` has the board hash files. The caller passes paths and a `Transfer` (`types`), and sends or receives
the bytes.

An upload goes to a temporary file on the board, is verified there and only then replaces the old file (`staging`). In
binary transfers, functions that are installed on the board (`routines`, `resident`) exchange blocks with the host
(`frames`). Boards that cannot do that receive content as Python statements (`statements`) and print it as text. `link`
keeps the state of one connection, and chooses the transfer method, block size and time limits.
"""
