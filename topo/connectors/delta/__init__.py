"""Delta tables as the target of a topology."""
