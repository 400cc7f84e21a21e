"""SQL over devices and recordings: `SqlEngine` runs a query, and `sql_source` serves it as a request type.

DuckDB runs in worker processes, which can open no file and no socket. The server reads the tables that a query names,
sends their rows to the worker and gets the rows of the result. So this package never imports DuckDB in the server.

::

    engine      the server's side of a query        tables    what is a table, and how it is read
    process     worker processes                    names     names of tables
    frames      the dialogue with a worker          limits    limits of queries
    worker      the worker's side of a query        statement, pushdown, databases   its parts
"""
