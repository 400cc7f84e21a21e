"""`sql`: reads the result of a query. It runs in the calling thread; the work is done in a worker process."""

from __future__ import annotations

from fastflight.access.identity import ANYBODY, Identity
from fastflight.service.requests import Sql
from fastflight.service.source import Estimate, Reading, SourceFunctions
from fastflight.sql.engine import SqlEngine


def sql_source(engine: SqlEngine) -> SourceFunctions[Sql]:
    """Return the source of `sql` requests."""

    def read(request: Sql) -> Reading:
        return engine.execute(request.query, _identity(request), request.parameters)

    def describe(request: Sql) -> Estimate:
        return Estimate(engine.prepare(request.query, _identity(request)).schema)

    return SourceFunctions(Sql, read=read, describe=describe)


def _identity(request: Sql) -> Identity:
    return request._identity or ANYBODY
