"""Files on disk: state folder, checkpoints, parts."""
