"""The `topo` command; installed as `topo_cli`, so that it shadows no module `cli` of a user."""
