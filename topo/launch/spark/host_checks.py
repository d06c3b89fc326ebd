"""The findings of the probe of the hosts, and whether workers can run there."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping

from topo.errors import UserError
from topo.extras import WORKER, pip_install
from topo.launch.spark.host_probe import HostFinding

_NO_INTERPRETER = re.compile(r'Cannot run program "([^"]+)".*?: (?:error=\d+, |Exec failed, error: \d+ \()?([^\n)]*)')
_VERSIONS = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+\d)")
_ERROR = re.compile(r"^\s*([\w.$]*(?:Error|Exception): \S.*)$", re.MULTILINE)
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")


def check_findings(findings: Iterable[HostFinding], endpoint: str, here: Mapping[str, str]) -> None:
    """Refuse hosts that workers cannot run on.

    Args:
        endpoint: which the hosts have to reach.
        here: the versions of PACKAGES in this process.

    Raises:
        UserError: each different complaint once, with the host and what to do.
    """
    complaints: dict[str, None] = {}
    for found in findings:
        host = f"{found['host']} ({found['executable']})"
        if missing := found.get("missing"):
            names = ", ".join(missing)
            complaints[
                f"{host} lacks {names}: on that host: {pip_install(WORKER)}; or ship a packed environment with "
                "--conf spark.archives=environment.tar.gz#environment"
            ] = None
        for name, version in found["packages"].items():
            if version.split(".")[0] != here[name].split(".")[0]:
                complaints[f"{host} has {name} {version}, and this machine {here[name]}: install the same"] = None
        if found.get("curve") is False:
            complaints[f"{host} has a libzmq that cannot encrypt: pip install --force-reinstall pyzmq"] = None
        if found.get("reaches") is False:
            complaints[
                f"{host} cannot reach this machine at {endpoint}: open the way for TCP, or name an address of this machine that "
                "the cluster reaches with --conf spark.driver.host=ADDRESS"
            ] = None
    if complaints:
        raise UserError("the cluster cannot run the topology: " + "; ".join(complaints))


def foreign_package(found: HostFinding) -> str:
    """Return the warning that a host has another project's `topo`. Its workers import the shipped one, which precedes it."""
    return (
        f"{found['host']} ({found['executable']}) has another project's package topo at {found['foreign']}: this one is shipped "
        "and used instead; remove the other with: pip uninstall topo"
    )


def explain(failure: str) -> str:
    """Return in one line why no Python task could run, from Spark's message."""
    if found := _NO_INTERPRETER.search(failure):
        return (
            f"hosts of the cluster have no Python at {found[1]} ({found[2].strip()}): name theirs with the environment "
            f"variable PYSPARK_PYTHON, which must be Python {_here()}"
        )
    if found := _VERSIONS.search(failure):
        there = found[1].strip("()").replace(", ", ".")
        return f"hosts of the cluster run Python {there} and this machine {found[2]}: name an equal one with PYSPARK_PYTHON"
    if found := _NO_MODULE.search(failure):
        return f"the Python of the cluster's hosts has no module {found[1]}: set PYSPARK_PYTHON to a Python that has it"
    errors = _ERROR.findall(failure)
    own = [text for text in errors if not text.startswith(("org.", "java.", "py4j."))]
    text = (own or errors or failure.strip().splitlines() or ["Spark gives no reason"])[-1]
    need = f"which need Python {_here()}, named by PYSPARK_PYTHON"
    return f"Spark cannot run Python tasks on its hosts, {need}: {text.strip()[:400]}"


def _here() -> str:
    return ".".join(platform.python_version_tuple()[:2])
