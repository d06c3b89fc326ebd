"""Tracking of tuple trees, pure: the acker's ledger, the spout's pending map, source positions and retries.

A spout task keeps what it has emitted in `pending`, a set of positions in `positions` and, when it replays by itself, the
messages in `retries`. An acker task wraps `ack_ledger` in `acker`. Everything works on columns (one call for a whole
frame), takes time as an argument and holds no reference to tasks, frames or transports.
"""
