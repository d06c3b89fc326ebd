"""`topo ui`: the web page of the topologies."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from topo_cli.options import examples, home_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "topo ui",
        "topo ui --port 0 --read-only",
        "topo ui --print",
        "topo ui --listen topo.example --tls-cert cert.pem --tls-key key.pem",
        "topo ui --behind-proxy --name topo.example --metrics 127.0.0.1:9464",
    )
)
@click.option("--port", type=click.IntRange(0, 65535), help="0: any free one. Default: 8088, or a free one.")
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen. An address that other machines reach needs --tls-cert and --tls-key, or --behind-proxy.",
)
@click.option("--tls-cert", type=_FILE, help="Speak HTTPS with this certificate (PEM, with its chain).")
@click.option("--tls-key", type=_FILE, help="The key of the certificate, without a password.")
@click.option("--behind-proxy", is_flag=True, help="Your proxy encrypts; --name is its name.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name that browsers use instead of ADDRESS.")
@click.option("--metrics", metavar="HOST:PORT", help="Also answer GET /metrics, on another port of the loopback address.")
@click.option("--read-only", is_flag=True, help="Allow no actions: a token only permits viewing.")
@click.option("--print", "only_print", is_flag=True, help="Print the address of the page that is already served, and exit.")
@click.option("--with-parent", "parent", type=int, hidden=True, help="End with this process.")
@home_option
def command(
    port: int | None,
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    names: tuple[str, ...],
    metrics: str | None,
    read_only: bool,
    only_print: bool,
    parent: int | None,
    home: Path,
) -> None:
    """Serve the web page of all topologies of this state folder until Ctrl-C, by default on the loopback address alone.

    It prints the address with a token. Anyone who has it can do what your commands can, except submit. The token stays the same
    until you remove ui.json from the state folder.
    """
    from topo.ui.listening import Listening
    from topo.ui.server import serve, served
    from topo_cli.exits import Failed
    from topo_cli.metrics import metrics_beside
    from topo_cli.output import talk

    if only_print:
        if (record := served(home)) is None:
            raise Failed("no page of this state folder is served; `topo ui` serves it")
        click.echo(record.link(read_only=read_only))
        return
    if parent is not None:
        from topo.worker.parent import die_with

        die_with(parent)
    listening = Listening(listen, names, tls_cert, tls_key, behind_proxy)
    listening.check()
    with ExitStack() as stack:
        if metrics is not None:
            talk(f"http://{stack.enter_context(metrics_beside(home, metrics))}/metrics")
        serve(home, port, listening, click.echo, read_only=read_only)
    talk("the page is no longer served")
