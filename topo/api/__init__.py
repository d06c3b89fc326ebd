"""What users write against: base classes and declarations, no behaviour. The public names are re-exported by `topo`."""
