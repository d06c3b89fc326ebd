"""Loading, copying and locating the user's code."""
