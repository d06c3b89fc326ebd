"""Keyed state: handles, tables, and how changes are taken back."""
