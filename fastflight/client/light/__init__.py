"""A client for short commands: the calls of `FastFlightClient` that a command needs, without loading Arrow's C++.

`pyarrow` and NumPy take longer to load than most commands take to run. Here a Flight call is plain gRPC over HTTP/2
(`calls`, with `h2`), and record batches are read by `nanoarrow` (`answer`). It reaches servers of this computer
without TLS. `FastFlightClient` is for everything else.
"""
