"""How frames travel between processes: one contract, over ZeroMQ and in memory."""
