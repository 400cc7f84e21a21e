"""SQL over devices and recordings: `SqlEngine` runs a query, and `SqlSource` serves it as a request type.

DuckDB runs in worker processes, which can open no file and no socket. The server reads the tables that a query names,
sends their rows to the worker and gets the rows of the result. So this package never imports DuckDB in the server.

::

    engine      all queries of a server             run         one query, the server's side
    tables      what is a table, and how it is read names       names of tables
    process     worker processes and limits         frames      the dialogue with a worker
    worker      the worker's side of a query        statement, pushdown, databases   its parts
"""
