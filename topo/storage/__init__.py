"""What is kept on disk: state folder, checkpoints, parts."""
