"""The one place that holds topo's version; the packaging metadata and `topo.__version__` read it."""

from __future__ import annotations

__version__ = "0.1.0"
