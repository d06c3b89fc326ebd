"""Clocks, timers and watermarks."""
