"""From what was declared to tasks, edges and workers: pure, serialisable data."""
