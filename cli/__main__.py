"""`python -m topo_cli` is `topo`."""

from topo_cli.entry import main

main()
