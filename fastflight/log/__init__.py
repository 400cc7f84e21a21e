"""The durable batch log that recordings are kept in."""
