"""Dead letters: messages that are given up, from the task that does so to the row on disk."""
