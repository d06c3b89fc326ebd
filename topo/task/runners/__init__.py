"""What each kind of component does with its input."""
