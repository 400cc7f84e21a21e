"""SQL queries that must reach nothing but the tables that they name, and must end."""

from __future__ import annotations

from fastflight.errors import QueryLimit, RequestError

from .case import Case


def refused(says: str, *queries: str) -> list[Case]:
    """Queries that are refused before they run, each for this reason."""
    return [
        Case(query if len(query) < 90 else f"{query[:80]}... ({len(query)})", query, RequestError, says)
        for query in queries
    ]


def limited(says: str, *queries: str) -> list[Case]:
    """Queries that run until they reach this limit; one of two if the computer's pace decides which one comes first."""
    return [Case(query[:90], query, QueryLimit, says) for query in queries]


TABLE_FUNCTION, FUNCTION, TABLE, NO_SELECT = "table function", "this function", "no such table", "is not allowed"

# Files, by the functions that read them and by their names.
FILES = [
    *refused(
        TABLE_FUNCTION,
        "select * from read_csv('/etc/passwd')",
        "select * from READ_CSV('/etc/passwd')",
        "select * from \"read_csv\"('/etc/passwd')",
        "select * from main.read_csv('/etc/passwd')",
        "select * from system.main.read_csv('/etc/passwd')",
        "select * from read_csv_auto('/etc/passwd')",
        "select * from read_csv(['/etc/passwd', '/etc/group'], delim = ':', header = false)",
        "select * from read_text('/etc/passwd')",
        "select * from read_text('/proc/self/environ')",
        "select * from read_blob('/proc/self/mem')",
        "select * from read_json('/etc/passwd')",
        "select * from read_json_auto('/etc/passwd')",
        "select * from read_json_objects('/etc/passwd')",
        "select * from read_ndjson('/etc/passwd')",
        "select * from read_ndjson_objects('/etc/passwd')",
        "select * from read_parquet('/etc/passwd')",
        "select * from parquet_scan('/etc/passwd')",
        "select * from parquet_metadata('/etc/passwd')",
        "select * from parquet_schema('/etc/passwd')",
        "select * from parquet_file_metadata('/etc/passwd')",
        "select * from parquet_kv_metadata('/etc/passwd')",
        "select * from parquet_bloom_probe('/etc/passwd', 'a', 1)",
        "select * from sniff_csv('/etc/passwd')",
        "select * from glob('/etc/*')",
        "select * from read_duckdb('/etc/passwd')",
        "select * from read_single_csv_file('/etc/passwd')",
        "from read_csv('https://example.org/x.csv')",
        "from read_parquet('s3://bucket/x.parquet')",
        "select (select content from read_text('/etc/passwd'))",
        "select * from range(3) where exists (from read_text('/etc/passwd'))",
        "with x as (from read_text('/etc/passwd')) select * from x",
        "with recursive x as (select 1 a union all select 2 from read_text('/etc/passwd')) from x",
        "select * from range(2) r, lateral (select * from read_text('/etc/passwd'))",
        "select 1 union all select count(*) from read_text('/etc/passwd')",
        "select * from (pivot (from read_text('/etc/passwd')) on filename in ('a') using count(*))",
        "select * from (values (1)) order by (select count(*) from read_text('/etc/passwd'))",
        "select list_transform([1], x -> (select count(*) from read_text('/etc/passwd')))",
        "describe select * from read_text('/etc/passwd')",
        "summarize select * from read_text('/etc/passwd')",
        "explain select * from read_text('/etc/passwd')",
        "explain analyze select * from read_text('/etc/passwd')",
        "select * from read_text(/* nothing */ '/etc/passwd')",
        "select * from\nread_text\n('/etc/passwd')",
        "select * from r\u00adead_text('/etc/passwd')",
    ),
    *refused(
        TABLE,
        "select * from '/etc/passwd'",
        "select * from '/etc/passwd.csv'",
        'select * from "/etc/passwd.csv"',
        "from 'https://example.org/x.parquet'",
        "from '*.csv'",
        "from '~/.ssh/id_rsa'",
        "summarize '/etc/passwd.csv'",
        "describe '/etc/passwd.csv'",
        "select * from a.b.c.d",
        "select * from postgres.demo.x",
        "select * from temp.main.table0",
        "select * from memory.main.x",
        "select * from system.main.duckdb_settings",
        "select * from sqlite_master",
        "select * from duckdb_tables",
        "select * from demo",
        "select * from ''",
    ),
]

# What tells about the process or about other queries, and what runs text as SQL.
INSIDE = [
    *refused(
        TABLE_FUNCTION,
        "select * from duckdb_settings()",
        "select * from duckdb_secrets()",
        "select * from duckdb_tables()",
        "select * from duckdb_views()",
        "select * from duckdb_databases()",
        "select * from duckdb_functions()",
        "select * from duckdb_extensions()",
        "select * from duckdb_memory()",
        "select * from duckdb_temporary_files()",
        "select * from duckdb_logs()",
        "select * from duckdb_prepared_statements()",
        "select * from duckdb_variables()",
        "select * from pragma_database_size()",
        "select * from pragma_table_info('x')",
        "select * from pragma_show('x')",
        "select * from pragma_version()",
        "select * from pragma_platform()",
        "select * from pragma_user_agent()",
        "select * from pragma_storage_info('x')",
        "select * from which_secret('s3://x', 's3')",
        "select * from query('select 1')",
        "select * from query_table('x')",
        "select * from query_table(['x', 'y'])",
        "select * from json_execute_serialized_sql('{}')",
        "select * from arrow_scan(1, 2, 3)",
        "select * from arrow_scan_dumb(1, 2, 3)",
        "select * from python_arrow_scan(1, 2, 3)",
        "select * from pandas_scan(1)",
        "select * from python_map_function(1)",
        "select * from seq_scan('x')",
        "select * from enable_logging()",
        "select * from enable_profiling()",
        "select * from checkpoint()",
        "select * from force_checkpoint()",
        "select * from truncate_duckdb_logs()",
        "select * from register_external_resource('x')",
        "select * from histogram('x', 'y')",
        "select * from test_all_types()",
        "select * from repeat_row(1, num_rows = 3), duckdb_settings()",
    ),
    *refused(
        FUNCTION,
        "select getenv('HOME')",
        "select current_setting('temp_directory')",
        "select CURRENT_SETTING('home_directory')",
        "select system.main.current_setting('threads')",
        "select getvariable('x')",
        "select nextval('x')",
        "select currval('x')",
        "select write_log('x')",
        "select sleep_ms(1000000)",
        "select pg_sleep(1000)",
        "select json_serialize_sql('select 1')",
        "select json_deserialize_sql('{}')",
        "select json_serialize_plan('select 1')",
        "select setseed(0.5)",
        "select txid_current()",
        "select __internal_compress_string_utinyint('a')",
        "select 'HOME'.getenv()",
        "select list_transform(['HOME'], x -> getenv(x))",
        "select 1 order by getenv('HOME')",
        "select count(*) filter (getenv('HOME') = 'x')",
        "select 1 having getenv('HOME') = 'x'",
        "select sum(1) over (partition by getenv('HOME'))",
        "select 1 limit length(getenv('HOME'))",
        "values (getenv('HOME'))",
    ),
    *refused("this view", "select * from information_schema.columns", "from information_schema.schema_privileges"),
    *refused(
        "show tables", "show databases", "show schemas", "select * from (show tables)", "select * from (show databases)"
    ),
]

# Everything that is no select.
STATEMENTS = refused(
    NO_SELECT,
    "set memory_limit = '100GB'",
    "set global enable_external_access = true",
    "set session threads = 1000",
    "set lock_configuration = false",
    "set variable x = 1",
    "reset memory_limit",
    "use x",
    "pragma memory_limit = '100GB'",
    "pragma enable_external_access",
    "pragma database_list",
    "pragma version",
    "install httpfs",
    "force install httpfs from 'http://example.org'",
    "load httpfs",
    "load '/tmp/x.duckdb_extension'",
    "attach '/etc/passwd' as x",
    "attach ':memory:' as x",
    "attach 'http://example.org/x.db'",
    "detach server",
    "copy (select 1) to '/tmp/x.csv'",
    "copy (select 1) to '/dev/stdout'",
    "copy x from '/etc/passwd'",
    "export database '/tmp/x'",
    "import database '/tmp/x'",
    "create table x (a int)",
    "create or replace view demo.recording as select 1",
    "create macro f(x) as x",
    "create function f(x) as x",
    "create schema x",
    "create sequence x",
    "create type x as enum ('a')",
    "create secret s (type s3)",
    "create temp table x as select 1",
    "drop view demo.recording",
    "drop schema demo cascade",
    "alter table x add column y int",
    "insert into x values (1)",
    "update x set a = 1",
    "delete from x",
    "truncate x",
    "merge into x using y on true when matched then delete",
    "begin transaction",
    "commit",
    "rollback",
    "checkpoint",
    "force checkpoint",
    "vacuum",
    "analyze",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "call pragma_version()",
    "call enable_logging()",
    "comment on table x is 'x'",
    "with x as (insert into y values (1)) select 1",
    "with x as (delete from y) select 1",
    "with x as (update y set a = 1) select 1",
)

# More than one statement, or none.
SEVERAL = refused(
    "statements are not one",
    "",
    " ",
    ";",
    "-- nothing",
    "/* nothing */",
    "select 1; select 2",
    "select 1;select 2;",
    "select 1; drop table x",
    "select 1 -- a comment\n; set threads = 1",
    "select 1 /* a comment */ ; attach 'x'",
    "select 1; /* */ copy (select 1) to 'x'",
    "set threads = 1; select 1",
    "select ';'; select 1",
)

# Text that is no SQL, or too much of it.
UNREADABLE = [
    *refused(
        "query:",
        "select",
        "select from where",
        "select * from demo.",
        "select 'a",
        'select "a',
        "select /* a",
        "select $$a",
        "select 1 +",
        "select (1",
        "select 1)",
        "select \0",
        "select '\ud800'",
        "selec\u0442 1",
        "\ufeff",
        "select \x1b[2J",
        "select * from demo.recording where",
        '{"type": "mock"}',
        "' or 1=1 --",
        "explain",
        "explain explain select 1",
        "explain (format json) select 1",
        "select " + "(" * 5000 + "1" + ")" * 5000,
        "select " + "1+" * 20_000 + "1",
        "select " + "- " * 20_000 + "1",
        "select " + "abs(" * 5000 + "1" + ")" * 5000,
        "select " + "not " * 20_000 + "true",
        "select " + "case when true then " * 4000 + "1" + " end" * 4000,
        "select * from " + "(select * from " * 3000 + "(select 1)" + ")" * 3000,
        "select " + "[" * 5000 + "]" * 5000,
        "select " + "x" * 100_001,
        "(" * 1_000_000,
    ),
]

# What would take memory, processor time or rows without end.
ENDLESS = [
    *limited(
        "seconds",
        "select count(*) from range(100000000000)",
        "with recursive x(n) as (select 1 union all select n + 1 from x) select max(n) from x",
    ),
    *limited(
        "memory or seconds",
        "select array_agg(range) from range(1000000000)",
    ),
    *limited(
        "rows or seconds",
        "from demo.recording a, demo.recording b select a.seq",
    ),
]

# What only looks bad.
HARMLESS = [
    Case("a semicolon at the end", "select 1 as x;", outcome=[{"x": 1}]),
    Case("semicolons in text", "select 'a; drop table x; --' as x", outcome=[{"x": "a; drop table x; --"}]),
    Case("a comment that hides nothing", "select 1 as x -- ; drop table x", outcome=[{"x": 1}]),
    Case("the name of a function as text", "select 'read_csv(''x'')' as x", outcome=[{"x": "read_csv('x')"}]),
    Case("a CTE with the name of a file", 'with "x.csv" as (select 1 as x) from "x.csv"', outcome=[{"x": 1}]),
    Case("a table of the name of a CTE", "with demo as (select 1 as x) from demo", outcome=[{"x": 1}]),
    Case("a column that is named as a function", "select 1 as getenv", outcome=[{"getenv": 1}]),
    Case(
        "a thousand columns",
        f"select count(*) as n from (select {', '.join(map(str, range(1000)))})",
        outcome=[{"n": 1}],
    ),
]

CASES = {"SQL": [*FILES, *INSIDE, *STATEMENTS, *SEVERAL, *UNREADABLE, *ENDLESS, *HARMLESS]}
