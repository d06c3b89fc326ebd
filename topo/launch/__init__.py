"""Launchers of worker processes, and functions that start, resume and end topologies on this machine."""
