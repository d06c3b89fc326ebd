"""The `topo` command; installed as `topo_cli`, so that a module called `cli` shadows nobody's own."""
