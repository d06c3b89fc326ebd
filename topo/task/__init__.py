"""Tasks as state machines: frames, routes and time in; frames and messages out. No I/O. `worker.py` hosts those of a process."""
