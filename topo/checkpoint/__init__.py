"""Checkpoints, as bytes and as data: the snapshots of tasks, and the manifest that makes them one. Pure."""
