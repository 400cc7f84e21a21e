"""The campaign of faults: a stage with boards, lines, servers and proxies, work on it, and what strikes it.

`program` and `stage` start the processes, `talker` is the board whose rows are counted, `works` is what is done and how
it is judged, `strikes` what may happen and where, `trial` one fault from its strike until all is usable again,
`report` the tables.
"""
