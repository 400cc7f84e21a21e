"""Moves files between a host and a board.

`OpenBoard` starts the transfers, each a conversation: `upload` writes one file, `tree` many, `download` reads one, and
`digest` has the board hash them. The caller gives paths and a `Transfer` (`types`), and feeds or receives the bytes.

An upload goes to a temporary file on the board, is verified there and only then replaces the old file (`staging`). In
binary, functions that are installed on the board (`routines`, `resident`) exchange blocks with us (`frames`). Boards
that cannot do that get their files as Python statements (`statements`). `link` holds what one connection has shown of
its line and its board, and so decides how the bytes go. `orphaned_transfer` recognises a board that another host left
in the middle of a transfer.
"""
