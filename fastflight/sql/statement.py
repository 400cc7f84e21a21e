"""Checks a query before it runs: it is one statement that only reads, and calls no function that reaches beyond it.

DuckDB parses the query; this module looks at the tree that it returns as JSON. The check allows statements, table
functions, scalar, aggregate and window functions, and kinds of nodes by name, so what a later DuckDB adds is refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import duckdb

from fastflight.errors import RequestError, nearest
from fastflight.sql.databases import CLOCKS
from fastflight.sql.functions import FUNCTIONS
from fastflight.sql.names import CATALOG, shown

# The schema with the standard's views of all tables. Only these two of its views are served.
STANDARD = "information_schema"
STANDARD_VIEWS = frozenset(("tables", "schemata"))
TABLE_FUNCTIONS = frozenset(
    ("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest", "generate_subscripts")
)
# What the names of DuckDB's own views begin with, those that need no schema.
DUCKDB_NAMES = ("duckdb_", "pg_", "pragma_", "sqlite_")
QUERIES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
# How much of a name must be the same for a hint: `avgg` is like `avg`, and `getenv` like no allowed function.
ALIKE = 0.8
# Names of operators, which any query may use, have other characters.
_WORD = re.compile(r"\w+")
EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
SHOW_TABLES = 'select "schema", "name", "type", sql_name from fastflight."tables" order by all'
WRITES = "SQL only reads: write a file with `fastflight put` or do_put, run code with `fastflight exec`"
SETTINGS = "The settings of SQL are those of the server: see the table [sql] of its fleet file"
HINTS = {
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE_INTO", "CREATE", "DROP", "ALTER", "COPY", "EXPORT"), WRITES),
    **dict.fromkeys(("SET", "VARIABLE_SET", "PRAGMA", "LOAD", "ATTACH", "DETACH", "CALL", "VACUUM"), SETTINGS),
    "MULTI": "Write a pivot as select * from (pivot t on x in ('a', 'b') using sum(y))",
}


@dataclass(slots=True)
class Statement:
    """A checked query. `sql` is what to run; `tables` are the names in it, each a path such as `["demo", "a.csv"]`.

    `lists` means that it reads the standard's views of all tables.
    """

    sql: str
    explain: Literal["", "plan", "analyze"] = ""
    parameters: list[str] = field(default_factory=list)
    tables: list[list[str]] = field(default_factory=list)
    # How often each of `tables` is named.
    counts: list[int] = field(default_factory=list)
    lists: bool = False
    # The objects of the parse tree.
    nodes: list[dict[str, Any]] = field(default_factory=list)


def check(query: str, connection: duckdb.DuckDBPyConnection) -> Statement:
    """Return the statement in `query`. `RequestError` if it is not allowed, or not one; `duckdb.Error` if not SQL."""
    statements = duckdb.extract_statements(query)
    if len(statements) != 1:
        raise RequestError(
            f"{len(statements)} statements are not one", where="query", hint="Send one select statement at a time"
        )
    kind, sql = statements[0].type.name, statements[0].query
    statement = Statement(sql, parameters=_in_order(statements[0].named_parameters))
    if kind == "EXPLAIN":
        found = EXPLAIN.match(sql)
        if found is None:
            raise RequestError("explain has no options here", where="query", hint="As in explain analyze select ...")
        statement.explain = "analyze" if found[1] else "plan"
        statement.sql = sql[found.end() :]
    elif kind != "SELECT":
        name = kind.lower().replace("_", " ")
        raise RequestError(f"{name} is not allowed", where="query", hint=HINTS.get(kind, "Only select is"))
    _inspect(statement, _tree(statement.sql, connection))
    return statement


def _in_order(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (int(name) if name.isdigit() else 0, name))


def _tree(sql: str, connection: duckdb.DuckDBPyConnection) -> Any:
    found = connection.execute("select json_serialize_sql($1, skip_null := true, skip_default := true)", [sql])
    tree = json.loads(found.fetchall()[0][0])
    if tree["error"]:
        message = tree["error_message"]
        if "Only SELECT statements" in message:
            raise RequestError("this is not a select statement", where="query", hint=WRITES)
        raise RequestError(message, where="query")
    return tree["statements"]


def _inspect(statement: Statement, tree: Any) -> None:
    scoped = list(_nodes(tree))
    nodes = statement.nodes = [node for node, _ in scoped]
    # `describe` and `summarize` have a query, whose tables are checked like all others.
    shows = [node for node in nodes if node.get("type") == "SHOW_REF" and "query" not in node]
    if shows:
        what = str(shows[0].get("table_name")).strip('"')
        if what not in ("tables", "__show_tables_expanded") or len(nodes) > 8:
            raise RequestError(
                "only `show tables` is allowed", where="query", hint=f"{SHOW_TABLES}, or describe a table"
            )
        statement.sql = SHOW_TABLES
        scoped = [({"type": "BASE_TABLE", "qualified_name": {"path": ["fastflight", "tables"]}}, frozenset())]
    for node, ctes in scoped:
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in QUERIES:
            raise RequestError("a query that writes is not allowed", where="query", hint=WRITES)
        if kind == "TABLE_FUNCTION":
            _refuse_unless(_function(node["function"]), TABLE_FUNCTIONS)
        elif node.get("class") == "FUNCTION":
            name = _function(node)
            if _WORD.fullmatch(name) and name not in FUNCTIONS | TABLE_FUNCTIONS:
                alike = difflib.get_close_matches(name, FUNCTIONS, 1, ALIKE)
                hint = (
                    f"Did you mean {alike[0]}?" if alike else "DuckDB's functions that compute with values are allowed"
                )
                raise RequestError("this function is not allowed", where=f"function {name}", hint=hint)
            if name in (*CLOCKS, "age") and len(node.get("qualified_name", {}).get("path", ())) > 1:
                raise RequestError("this function has no schema", where=f"function {name}", hint=f"Write {name}(...)")
        elif kind == "BASE_TABLE":
            path = list(node["qualified_name"]["path"])
            if len(path) == 1 and path[0].lower() in ctes:
                continue
            if [part.lower() for part in path[-2:-1]] == [STANDARD]:
                _refuse_unless(path[-1].lower(), STANDARD_VIEWS, "view")
                statement.lists = True
                continue
            path = _qualified(path)
            if path in statement.tables:
                statement.counts[statement.tables.index(path)] += 1
            else:
                statement.tables.append(path)
                statement.counts.append(1)


def _qualified(path: list[str]) -> list[str]:
    """Return catalog, schema and table of a name in a query."""
    if len(path) == 3 and path[0].lower() == CATALOG:
        return [CATALOG, *path[1:]]
    if len(path) != 2:
        hint = 'Give the device and the file, as in demo."readings.csv"'
        raise RequestError("no such table", where=shown(path), hint=hint)
    return [CATALOG, *path]


def _function(node: Any) -> str:
    path = (node.get("qualified_name") or {}).get("path") or [node["function_name"]]
    return str(path[-1]).lower()


def _refuse_unless(name: str, allowed: frozenset[str], what: str = "table function") -> None:
    if name not in allowed:
        raise RequestError(f"this {what} is not allowed", where=f"{what} {name}", hint=nearest(name, allowed))


def _nodes(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield all objects of a tree, however deep it is, each with the names of the CTEs that it can use.

    A query has its own CTEs and those of the queries around it. A CTE has those before it, and itself if it recurses.
    """
    left: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while left:
        node, ctes = left.pop()
        inner: list[tuple[Any, frozenset[str]]] = []
        if isinstance(node, dict):
            yield node, ctes
            if node.get("type") == "RECURSIVE_CTE_NODE":
                ctes |= {node["cte_name"].lower()}
            for each in (node.get("cte_map") or {}).get("map", []):
                inner.append((each, ctes))
                ctes |= {_cte(each["key"])}
            inner += [(value, ctes) for key, value in node.items() if key != "cte_map"]
        elif isinstance(node, list):
            inner = [(value, ctes) for value in node]
        left.extend(reversed(inner))


def _cte(name: str) -> str:
    """Return the name of a CTE in lower case. `RequestError` for one that DuckDB may take for a table of its own."""
    if name.lower().startswith(DUCKDB_NAMES):
        raise RequestError("this name is reserved", where=f"with {name}", hint="Give the subquery another name")
    return name.lower()
