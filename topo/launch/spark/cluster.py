"""The Spark cluster of a topology: the user's options, and the Spark settings that follow."""

from __future__ import annotations

from collections.abc import Mapping

from topo.config import parse_duration
from topo.errors import UserError
from topo.storage.submitted import SparkCluster

SPARE_CORES = 1
"""A core for the replacement of an agent that no longer answers and still holds its own core."""

_STEADY_S = 8.0
"""The number of slots is final when it has not grown for this time: executors come up one by one."""
_SPARE_WAIT_S = 0.5
_REGISTER_S = {"spark": 30.0, "local": 60.0}
"""How long executors may take to come up. Where they are containers that is minutes."""
_CONTAINERS_S = 120.0
_WAIT_SETTING = "spark.scheduler.maxRegisteredResourcesWaitingTime"

_FIXED = {
    # An agent fails when its worker node does, for as long as the topology lives; how often is the master's matter.
    "spark.task.maxFailures": "1000000",
    # A second copy of a task would be a second agent; an idle executor is a spare one.
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.excludeOnFailure.enabled": "false",
    # What agents change in their process must not meet the next task.
    "spark.python.worker.reuse": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.task.cpus": "1",
}
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Agents and workers are Python processes: the executor's own heap only supervises them.
    "spark.executor.memory": "512m",
    # Else the end of a topology waits minutes for each host that does not answer.
    "spark.cleaner.referenceTracking.blocking": "false",
    # The slot check waits, and knows when to give up.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
}

_OF_CONTAINERS = {
    # Spark ends an application that has lost twice as many executors as it has, in all its life.
    "spark.executor.maxNumFailures": "1000000",
    # As YARN does one whose ApplicationMaster was lost twice.
    "spark.yarn.am.attemptFailuresValidityInterval": "1h",
}


def are_containers(master: str) -> bool:
    """Whether executors of this master are containers, which come one by one and may be killed for their memory."""
    return master.startswith(("yarn", "k8s://"))


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuse settings under which a topology could not run.

    Raises:
        UserError: names the setting, and why.
    """
    for name, value in _FIXED.items():
        if name in conf and conf[name] != value:
            raise UserError(f"a topology cannot run with {name}={conf[name]}: it needs {name}={value}; leave the setting out")


def registration_s(cluster: SparkCluster) -> float:
    """Return the seconds that executors may take to come up. Raises ConfigError for a setting that is no duration."""
    if given := cluster.conf.get(_WAIT_SETTING, "").strip().lower():
        # As Spark reads it: a number alone is one of milliseconds.
        return float(given) / 1000 if given.isdecimal() else parse_duration(given.replace("min", "m"))
    return _REGISTER_S.get(cluster.master[:5], _CONTAINERS_S)


def spark_settings(cluster: SparkCluster, topology: str, slots: int, address: str) -> dict[str, str]:
    """Return all settings of the Spark application that runs a topology.

    Args:
        cluster: the user's options.
        topology: its name.
        slots: cores that agents take.
        address: of this machine, as the cluster sees it.

    Raises:
        UserError: see `check_conf`.
    """
    check_conf(cluster.conf)
    cores = slots + SPARE_CORES
    settings = {
        "spark.app.name": f"topo {topology}",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        **_DEFAULTS,
    }
    given = cluster.conf.get("spark.executor.cores", "1")
    if not given.isdecimal() or (per_executor := int(given)) < 1:
        raise UserError(f"spark.executor.cores={given} is no number of cores: set 1 or more")
    executors = -(-cores // per_executor)
    if are_containers(cluster.master):
        settings["spark.executor.cores"] = str(per_executor)
        settings["spark.executor.instances"] = str(executors)
        settings |= _OF_CONTAINERS
    else:
        # For a rest that is less than an executor Spark starts none.
        settings["spark.cores.max"] = str(executors * per_executor)
    return {**settings, **cluster.conf, **_FIXED}


class SlotWatch:
    """Waits for slots to be there, and for the spare one if that does not take long.

    Args:
        topology, master: for the message.
        needed: how many slots agents take.
        limit_s: how long executors have to come up at all.
        now: monotonic seconds.
    """

    def __init__(self, topology: str, master: str, needed: int, limit_s: float, now: float) -> None:
        self._topology = topology
        self._master = master
        self._needed = needed
        self._until = now + limit_s
        self._offered = 0
        self._changed_at = now

    def is_over(self, offered: int, now: float) -> bool:
        """Take in how many slots there are now; return whether that will do.

        Raises:
            UserError: there are too few, and no more are coming.
        """
        if offered != self._offered:
            self._offered, self._changed_at = offered, now
        steady_s = now - self._changed_at
        if offered >= self._needed:
            return offered > self._needed or steady_s >= _SPARE_WAIT_S
        if now < self._until and not (offered and steady_s >= _STEADY_S):
            return False
        if not offered:
            raise UserError(
                f"topology {self._topology} needs {self._needed} worker slots; Spark at {self._master} gives it none: are its "
                "cores taken, has none of its workers the memory that spark.executor.memory asks for, or can its hosts not "
                "reach this machine (spark.driver.host)?"
            )
        more = "add Spark workers, or raise spark.cores.max"
        if are_containers(self._master):
            more = "or have the queue or namespace give more: executors ask for spark.executor.memory and its memoryOverhead"
        raise UserError(
            f"topology {self._topology} needs {self._needed} worker slots; Spark at {self._master} offers {offered}. "
            f"Lower --workers or --slots, {more}"
        )
