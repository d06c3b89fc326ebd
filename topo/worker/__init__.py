"""A worker process: its tasks, its loop, its start."""
