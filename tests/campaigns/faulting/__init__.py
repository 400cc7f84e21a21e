"""The campaign of faults: a stage with boards, lines, servers and proxies, work on it, and strikes at the work.

`program` and `stage` start the processes. `talker` is the board whose rows are counted. `works` has the kinds of work
and how they are judged, `strikes` the faults, `trial` one fault until everything is usable again.
"""
