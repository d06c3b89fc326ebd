"""The specification of an agent, sent in the closure of its Spark task, and the addresses of agents and driver."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from topo.errors import TopoEnvironmentError


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One submission of one slot's job.

    Attributes:
        topology: its name.
        endpoint: where the driver listens for agents.
        driver_key: its public CURVE key.
        public_key, secret_key: the agent's own pair.
        heartbeat_s: interval of its heartbeats.
        timeout_s: it ends without a message of the driver for this time.
        code: name of the file, shipped by Spark, that holds the user's code; "" when hosts have it installed.
        code_folder: where that code is on the driver, which specs name.
    """

    topology: str
    slot: int
    submission: int
    endpoint: str
    driver_key: str
    public_key: str
    secret_key: str = field(repr=False)
    heartbeat_s: float
    timeout_s: float
    code: str
    code_folder: str


def address_towards(host: str, port: int = 9) -> str:
    """Return the address by which this machine is seen from `host`. Nothing is sent.

    Raises:
        TopoEnvironmentError: there is no way to it.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise TopoEnvironmentError(f"there is no way from here to {host}: {error}") from error


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Take apart an endpoint or URL such as tcp://10.0.0.1:4000 or spark://name:7077."""
    host, _, port = endpoint.partition("://")[2].split(",")[0].rstrip("/").rpartition(":")
    return host, int(port)
