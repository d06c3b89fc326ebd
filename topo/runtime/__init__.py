"""The shells: sockets, processes, files and clocks around the pure state machines of tasks and master."""
