"""The API of user code: base classes and declarations, no behaviour. The public names are re-exported by `topo`."""
