"""SQL over devices and recordings: `SqlEngine` runs a query, and `SqlSource` serves it as a request type.

DuckDB runs in worker processes, which can open no socket and no file outside of their folder. The server puts the
tables that a query names into this folder, and gets the rows of the result. It never imports DuckDB itself.

::

    engine      all queries of a server             run         one query, the server's side
    tables      the rows of tables, as files        names       names of tables
    process     worker processes and limits         folder      the files that a worker reads
    frames      the dialogue with a worker          results     what a worker sends, checked
    worker      the worker's side of a query        statement, parameters, database   its parts
"""
