"""Iceberg tables as output."""
