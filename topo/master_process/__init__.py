"""The process of the topology master: its loop, its connections, its checkpoints' thread."""
