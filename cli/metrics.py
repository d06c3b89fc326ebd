"""`topo metrics`: the figures of topologies for Prometheus, or for a collector of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import click

from topo_cli.exits import Failed
from topo_cli.options import TimeSpan, examples, home_option

DEFAULT = "127.0.0.1:9464"


@click.command(
    epilog=examples(
        "topo metrics",
        "topo metrics --once > /var/lib/node_exporter/topo.prom",
        "topo metrics word-count --listen 10.0.0.5:9464 --insecure",
        "topo metrics --otlp http://127.0.0.1:4318 --every 30s",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--listen", metavar="HOST:PORT", default=DEFAULT, show_default=True, help="Where to answer GET /metrics; port 0: any."
)
@click.option(
    "--insecure", is_flag=True, help="Listen on an address that other machines can reach, without a password and unencrypted."
)
@click.option("--once", is_flag=True, help="Print the figures, or push them with --otlp, and exit.")
@click.option("--otlp", metavar="URL", default="", help="Push to an OpenTelemetry collector instead of serving Prometheus.")
@click.option("--every", "every_s", type=TimeSpan(), default="15s", show_default=True, help="How often to push.")
@home_option
def command(names: tuple[str, ...], listen: str, insecure: bool, once: bool, otlp: str, every_s: float, home: Path) -> None:
    """Serve the figures of all topologies of this state folder, or of those NAMEd, to Prometheus until Ctrl-C.

    A dashboard for Grafana and alert rules are in deploy/. The figures name topologies, components, hosts' worker numbers and
    metrics of user code; no values of tuples.
    """
    from topo.operate.topology_index import find_topology
    from topo.storage.state_folder import StateFolder
    from topo.transport.security import is_loopback
    from topo_cli.output import talk

    StateFolder(home)
    if otlp:
        _push([find_topology(name, home).name for name in names], otlp, every_s, home, once=once)
        return
    from topo.operate.prometheus import MetricsServer, TopologyCollector

    collector = TopologyCollector(home, [find_topology(name, home).name for name in names])
    if once:
        click.echo(collector.text().decode(), nl=False)
        return
    host, port = _address(listen, "--listen")
    if not is_loopback(host) and not insecure:
        raise click.UsageError(
            f"{host} is reached by other machines, and the figures go without a password or encryption; "
            "--insecure does so, or put a proxy before 127.0.0.1"
        )
    with MetricsServer(collector, host, port) as server:
        talk(f"http://{server.address}/metrics; Ctrl-C ends it")
        server.serve_forever(poll_interval=0.1)


@contextmanager
def metrics_beside(home: Path, listen: str) -> Iterator[str]:
    """Serve the figures of all topologies from a thread, on a loopback address; give the address. Raises UserError."""
    from topo.operate.prometheus import MetricsServer, TopologyCollector
    from topo.transport.security import is_loopback

    host, port = _address(listen, "--metrics")
    if not is_loopback(host):
        raise click.UsageError(f"{host} is reached by other machines; for such an address there is `topo metrics --insecure`")
    with MetricsServer(TopologyCollector(home), host, port) as server:
        thread = Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join()


def _push(names: list[str], url: str, every_s: float, home: Path, *, once: bool) -> None:
    """Push until Ctrl-C. A collector that is away gets the next figures, which hold all since the start."""
    import time

    from topo.operate.otlp import MetricPusher
    from topo_cli.output import talk

    if every_s < 1:
        raise click.UsageError("--every takes 1s or more: workers send their figures once a second")
    pusher = MetricPusher(home, url, names)
    was_taken = None
    while True:
        began = time.monotonic()
        is_taken = pusher.push()
        if once and not is_taken:
            raise Failed(f"{url} has not taken the figures; the lines above say why")
        if once:
            return
        if is_taken is not was_taken:
            talk(f"pushing to {url} every {every_s:g} s; Ctrl-C ends it" if is_taken else f"{url} takes no figures; trying again")
            was_taken = is_taken
        time.sleep(max(0.0, began + every_s - time.monotonic()))


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"{option} takes HOST:PORT, such as {DEFAULT}; got {text!r}")
    if ":" in host:
        raise click.UsageError(f"{option} takes a name or an IPv4 address, such as {DEFAULT}; got {text!r}")
    return host, int(port)
