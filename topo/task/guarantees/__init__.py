"""What delivery means: tracked, checkpointed."""
