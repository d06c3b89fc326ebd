"""From what user code emits to columns for each target: collectors, routing, event time of the output."""
