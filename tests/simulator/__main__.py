"""`python -m tests.simulator`: replays the run of a seed."""

from __future__ import annotations

from tests.simulator.simulation import main

if __name__ == "__main__":
    raise SystemExit(main())
