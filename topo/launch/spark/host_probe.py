"""A look at the hosts of a cluster before anything is started: one short task in each slot, all at the same time.

A task returns its findings; the cluster reports tasks that cannot run at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

PACKAGES = ("zmq", "msgpack", "msgspec")
"""What workers import besides topo, which can be shipped: these have compiled parts."""

HostFinding = dict[str, Any]
"""host, python, executable; packages: their versions; missing: those that cannot be imported; topo: a digest of
the installed files, or ""; foreign: the file of another project's `topo`, where installed; curve: whether libzmq encrypts;
reaches: whether the driver has answered."""


def probe_task(
    endpoint: str, driver_key: str, public_key: str, secret_key: str, timeout_s: float
) -> Callable[[Iterable[Any]], Iterator[HostFinding]]:
    """Return the body of the probe's tasks. It stands alone: the host may not have topo."""
    packages = PACKAGES

    def probe(_: Iterable[Any]) -> Iterator[HostFinding]:
        import hashlib
        import importlib
        import importlib.util
        import os
        import pathlib
        import platform
        import sys

        found: HostFinding = {"host": platform.node(), "python": platform.python_version(), "executable": sys.executable}
        found["packages"] = versions = {}
        for name in packages:
            try:
                versions[name] = importlib.import_module(name).__version__
            except ImportError as error:
                found.setdefault("missing", {})[name] = str(error)
        spec = importlib.util.find_spec("topo")
        found["topo"] = ""
        if spec is not None and spec.origin and os.path.exists(spec.origin):
            package = pathlib.Path(spec.origin).parent
            total = hashlib.sha256()
            for path in sorted(package.rglob("*.py")):
                total.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
            found["topo"] = total.hexdigest()[:16]
            if b"TopologyBuilder" not in pathlib.Path(spec.origin).read_bytes():
                found["foreign"] = spec.origin
        if "zmq" in versions:
            import zmq

            found["curve"] = bool(zmq.has("curve"))
            # Without CURVE a socket refuses the keys.
            if found["curve"]:
                context = zmq.Context()
                link = context.socket(zmq.DEALER)
                link.linger = 0
                link.curve_serverkey, link.curve_publickey, link.curve_secretkey = (
                    key.encode() for key in (driver_key, public_key, secret_key)
                )
                link.connect(endpoint)
                link.send(b"probe")
                found["reaches"] = bool(link.poll(int(timeout_s * 1000)))
                context.destroy(linger=0)
        yield found

    return probe
