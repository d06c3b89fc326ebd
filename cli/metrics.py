"""`topo metrics`: the figures of topologies for Prometheus."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import click

from topo_cli.options import examples, home_option

DEFAULT = "127.0.0.1:9464"


@click.command(
    epilog=examples(
        "topo metrics",
        "topo metrics --once > /var/lib/node_exporter/topo.prom",
        "topo metrics word-count --listen 10.0.0.5:9464 --insecure",
    )
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--listen", metavar="HOST:PORT", default=DEFAULT, show_default=True, help="Where to answer GET /metrics; port 0: any."
)
@click.option("--insecure", is_flag=True, help="Listen on an address that other machines reach: without a password, unencrypted.")
@click.option("--once", is_flag=True, help="Print the figures, and exit.")
@home_option
def command(names: tuple[str, ...], listen: str, insecure: bool, once: bool, home: Path) -> None:
    """Serve the figures of all topologies of this state folder, or of those NAMEd, to Prometheus until Ctrl-C.

    A dashboard for Grafana and alert rules are in deploy/. The figures name topologies, components, hosts' worker numbers and
    metrics of user code; no values of tuples.
    """
    from topo.operate.prometheus import MetricsServer, TopologyCollector
    from topo.storage.state_folder import StateFolder
    from topo_cli.output import talk
    from topo_cli.topology_index import find_topology

    StateFolder(home)
    collector = TopologyCollector(home, [find_topology(name, home).name for name in names])
    if once:
        click.echo(collector.text().decode(), nl=False)
        return
    host, port = _address(listen)
    if not _is_loopback(host) and not insecure:
        raise click.UsageError(
            f"{host} is reached by other machines, and the figures go without a password or encryption; "
            "--insecure does so, or put a proxy before 127.0.0.1"
        )
    server = MetricsServer(collector, host, port)
    talk(f"http://{server.address}/metrics; Ctrl-C ends it")
    try:
        server.serve()
    finally:
        server.release()


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen takes HOST:PORT, such as {DEFAULT}; got {text!r}")
    if ":" in host:
        raise click.UsageError(f"--listen takes a name or an IPv4 address, such as {DEFAULT}; got {text!r}")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
