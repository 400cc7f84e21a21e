"""Opens the recordings of a server: in its own folder, or shared with the other servers of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from fastflight.app.config import Config, RecordingSettings
from fastflight.device import Inventory
from fastflight.errors import BusyError
from fastflight.extras import needs
from fastflight.log import Retention
from fastflight.sources import Recordings, RowLayout, TypedRows
from fastflight.sources.recording import Readable

# What a server of a cluster records while NATS is away, at most. Older rows are then lost, and counted.
BUFFER_BYTES = 1_000_000_000


def open_recordings(config: Config, inventory: Inventory) -> Recordings | None:
    """Return the recordings, which the caller closes. None if nothing can be recorded."""
    wanted = config.recordings
    if wanted is None:
        return None
    holder = f"the server at {config.location}"
    if config.cluster is not None:
        return _open_shared(config, wanted, inventory, holder)
    if wanted.on_demand:
        return Recordings(wanted.folder, inventory, holder=holder, on_demand=True)
    return Recordings(wanted.folder, inventory, sync_ms=wanted.sync_ms, retention=wanted.retention, holder=holder)


def typed_rows(
    recordings: Recordings | None,
    log_of: Callable[[str], Readable],
    declared: Callable[[str], RowLayout | None],
) -> TypedRows:
    """Return the typed rows of the recordings, which are kept in their folder once anything is recorded there."""

    if recordings is None:
        return TypedRows(log_of, declared)
    typed = TypedRows(log_of, declared, recordings.folder, lambda: recordings.is_open, recordings.listed)
    recordings.parse, recordings.look = typed.prepare, typed.has_table
    return typed


def _open_shared(config: Config, wanted: RecordingSettings, inventory: Inventory, holder: str) -> Recordings:
    """Open a buffer for this server in the folder of recordings, and the recordings of the cluster."""
    cluster = config.cluster
    assert cluster is not None
    with needs("cluster", "--cluster"):
        from fastflight.app.cluster import nats_address
        from fastflight.cluster.shared_recordings import SharedRecordings
    limits = wanted.retention
    buffer = Retention(limits.max_seconds, min(limits.max_bytes or BUFFER_BYTES, BUFFER_BYTES))
    # Several servers of one computer may have the same fleet file, and a folder has one writer.
    folder = wanted.folder / cluster.name
    try:
        shared = SharedRecordings(nats_address(cluster), cluster.name, cluster.fleet, limits, folder, holder)
        try:
            return Recordings(folder, inventory, sync_ms=wanted.sync_ms, retention=buffer, holder=holder, shared=shared)
        except BaseException:
            shared.close()
            raise
    except BusyError as error:
        raise BusyError(
            f"another process records there: {error.holder}" if error.holder else "another process records there",
            holder=error.holder,
            where=str(folder),
            hint="Give this server another name with --cluster-name, or another folder with --recordings",
        ) from error
