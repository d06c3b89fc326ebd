"""Tracking of tuple trees, pure: source positions, retries, dead processes' suspects, windows.

A spout task keeps its emitted messages in `topo.hot.Pending`, a set of positions in `positions` and, when the engine replays, the
messages in `retries`. An acker task has `topo.hot.Trees`. Everything works on columns (one call for a whole
frame), takes time as an argument and holds no reference to tasks, frames or transports.
"""
