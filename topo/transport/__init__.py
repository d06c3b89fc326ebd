"""Transports of frames between processes: one contract, over ZeroMQ and in memory."""
