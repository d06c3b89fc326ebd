"""Open files: counted before sockets are made, since libzmq ends the process (SIGABRT) when it cannot have one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable

from topo.errors import TopoEnvironmentError
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan

_SPARE = 32
"""What a process opens beside its peers: Python's own files, logs, its ZeroMQ context, a child process that is being started."""
CLIENT = 16
"""What a command needs that asks a master."""


def of_master(plan: PhysicalPlan) -> int:
    """Return how many files a master has open at once: of each worker its process, its two connections and a start."""
    return _SPARE + 4 * len(plan.workers)


def of_worker(plan: PhysicalPlan, tasks: Iterable[TaskId]) -> int:
    """Return how many files a worker with these tasks has open at once: its inbox, its outlets, and their connections."""
    mine = frozenset(tasks)
    peers = {plan.worker_of(peer) for task in mine for peer in plan.peers(task) - mine}
    # An inbox that listens, and for each peer process its connection to that and a socket with a connection to its inbox.
    return _SPARE + 2 + 3 * len(peers)


def ensure(needed: int, what: str) -> None:
    """Make sure that this process may open that many more files; raises its soft limit where the hard one allows it.

    Args:
        needed: files, sockets and pipes beside those that are open.
        what: needs them, for the error.

    Raises:
        TopoEnvironmentError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/dev/fd")) + needed
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise TopoEnvironmentError(
            f"{what} needs up to {wanted} open files, and the limit is {hard}: raise it (ulimit -n {_round(wanted)}), "
            "or spread the tasks over fewer or smaller workers"
        )
    limit = _round(wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _round(count: int) -> int:
    """Return the next power of two."""
    return 1 << (count - 1).bit_length()
