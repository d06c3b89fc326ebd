"""Ready-made spouts and bolts. They are written against `topo.api` alone, as a user's own are."""
