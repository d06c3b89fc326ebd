"""Kills of workers, the master and a server at random, each at least once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.integration.random_kills import SECONDS, SEED, Killer

EVERY_S = 2.0
KINDS = ("worker", "master", "server")


def kill_for_a_while(killer: Killer, restart_server: Callable[[random.Random], None]) -> Counter[str]:
    """Kill until the time is over or the topology has ended; return how often each kind was struck.

    Args:
        killer: of the topology.
        restart_server: ends the server at once, and starts it again, on the thread that it has to end with.
    """
    chance, struck, left = random.Random(SEED), Counter[str](), list(KINDS)
    until = time.monotonic() + SECONDS
    while (left or time.monotonic() < until) and killer.running.folder.is_running():
        time.sleep(EVERY_S)
        kind = left[0] if left else chance.choice(KINDS)
        if kind == "server":
            restart_server(chance)
        elif not killer.strike("one" if kind == "worker" else "master"):
            continue
        struck[kind] += 1
        left = [one for one in left if one != kind]
    return struck
