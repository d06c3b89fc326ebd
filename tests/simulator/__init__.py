"""Whole topologies in virtual time: `python -m tests.simulator --seed 7`."""
