"""`python -m topo_cli` is `topo`."""

from topo_cli.main import main

main()
