"""Puts a server together: settings from a command line and a fleet file, devices, sources, edges, access.

`compose.open_server` starts a server in this process, as `fastflight serve` does. Files and the environment are
read here and in `cli`, nowhere below.
"""
