"""From the declared topology to tasks, edges and workers: pure, serialisable data."""
