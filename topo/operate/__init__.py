"""What operators ask of a topology, running or ended: its past, its findings, its metrics. The commands print it."""
