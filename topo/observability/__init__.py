"""Logs and status of a topology."""
