"""topo: a distributed topology engine. Public names are re-exported here."""
