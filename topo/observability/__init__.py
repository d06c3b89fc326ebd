"""What a topology tells of itself: logs."""
