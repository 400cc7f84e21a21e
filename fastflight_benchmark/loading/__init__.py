"""Load on servers from processes of its own: Flight clients, and ghz where there is one."""
