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
from typing import Any

import duckdb

from fastflight.errors import RequestError, nearest
from fastflight.sql.functions import FUNCTIONS
from fastflight.sql.names import CATALOG, STANDARD, shown

# Only these two of the standard's views are served.
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
    """A checked query. `sql` is what to run; `tables` are the names in it: catalog, schema and table.

    `lists` means that it reads the standard's views of all tables.
    """

    sql: str
    explain: bool = False
    parameters: list[str] = field(default_factory=list)
    tables: list[list[str]] = field(default_factory=list)
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
    parameters = sorted(statements[0].named_parameters, key=lambda name: (int(name) if name.isdigit() else 0, name))
    explain = EXPLAIN.match(sql) if kind == "EXPLAIN" else None
    if kind == "EXPLAIN" and explain is None:
        raise RequestError("explain has no options here", where="query", hint="As in explain analyze select ...")
    if kind not in ("EXPLAIN", "SELECT"):
        name = kind.lower().replace("_", " ")
        raise RequestError(f"{name} is not allowed", where="query", hint=HINTS.get(kind, "Only select is"))
    prefix = explain[0] if explain else ""
    nodes = list(_nodes(_tree(sql.removeprefix(prefix), connection)))
    if _shows_tables(nodes):
        tables = [[CATALOG, "fastflight", "tables"]]
        return Statement(prefix + SHOW_TABLES, bool(prefix), parameters, tables, nodes=nodes)
    statement = Statement(sql, bool(prefix), parameters, nodes=nodes)
    _check_nodes(statement)
    return statement


def _tree(sql: str, connection: duckdb.DuckDBPyConnection) -> Any:
    found = connection.execute("select json_serialize_sql($1, skip_null := true, skip_default := true)", [sql])
    tree = json.loads(found.fetchall()[0][0])
    if tree["error"]:
        message = tree["error_message"]
        if "Only SELECT statements" in message:
            raise RequestError("this is not a select statement", where="query", hint=WRITES)
        raise RequestError(message, where="query")
    return tree["statements"]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree, however deep it is."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(reversed(node.values()))
        elif isinstance(node, list):
            left.extend(reversed(node))


def _shows_tables(nodes: list[dict[str, Any]]) -> bool:
    """Whether the query is `show tables`. `RequestError` if it shows something else."""
    # `describe` and `summarize` have a query, whose tables are checked like all others.
    shows = [node for node in nodes if node.get("type") == "SHOW_REF" and "query" not in node]
    for node in shows:
        if str(node.get("table_name")).strip('"') not in ("tables", "__show_tables_expanded") or len(nodes) > 8:
            raise RequestError(
                "only `show tables` is allowed", where="query", hint=f"{SHOW_TABLES}, or describe a table"
            )
    return bool(shows)


def _check_nodes(statement: Statement) -> None:
    """Refuse what is not allowed, and add the tables that the query names."""
    # DuckDB knows where the name of a subquery may be used. Elsewhere it finds no table: all of them have a schema.
    ctes = {_cte(each["key"]) for node in statement.nodes for each in (node.get("cte_map") or {}).get("map", [])}
    for node in statement.nodes:
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in QUERIES:
            raise RequestError("a query that writes is not allowed", where="query", hint=WRITES)
        if kind == "TABLE_FUNCTION":
            _refuse_unless(_function(node["function"]), TABLE_FUNCTIONS)
        elif node.get("class") == "FUNCTION":
            _check_function(_function(node))
        elif kind == "BASE_TABLE":
            path = list(node["qualified_name"]["path"])
            if [part.lower() for part in path[-2:-1]] == [STANDARD]:
                _refuse_unless(path[-1].lower(), STANDARD_VIEWS, "view")
                statement.lists = True
            elif (len(path) > 1 or path[0].lower() not in ctes) and _qualified(path) not in statement.tables:
                statement.tables.append(_qualified(path))


def _check_function(name: str) -> None:
    if _WORD.fullmatch(name) and name not in FUNCTIONS | TABLE_FUNCTIONS:
        alike = difflib.get_close_matches(name, FUNCTIONS, 1, ALIKE)
        hint = f"Did you mean {alike[0]}?" if alike else "DuckDB's functions that compute with values are allowed"
        raise RequestError("this function is not allowed", where=f"function {name}", hint=hint)


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


def _cte(name: str) -> str:
    """Return the name of a subquery in lower case. `RequestError` for one that DuckDB's own tables may have."""
    if name.lower().startswith(DUCKDB_NAMES):
        raise RequestError("this name is reserved", where=f"with {name}", hint="Give the subquery another name")
    return name.lower()
