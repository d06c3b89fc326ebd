"""Bytes: frames between tasks, values inside them, and control messages. Pure; whatever a peer sends wrong is a FrameError."""
