"""Another package of the name `topo`: the package index has one, and a user's own file can be called topo.py."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec

_OURS = "TopologyBuilder"
"""A name that this project's `topo/__init__.py` holds, and others do not."""


def foreign_topo() -> str | None:
    """Return the problem and its fix when this Python imports another project's `topo`; None when it imports this one.

    Nothing of the other package is executed.
    """
    spec = find_spec("topo")
    if spec is None:
        return "this Python cannot import topo; install it from its checkout: pip install path/to/the/checkout"
    if _OURS in _source_of(spec):
        return None
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    return (
        f"this Python imports another package named topo, from {place}: remove that (pip uninstall topo) or rename it, then "
        "install this one again from its checkout: pip install --force-reinstall --no-deps path/to/the/checkout"
    )


def _source_of(spec: ModuleSpec) -> str:
    get_source = getattr(spec.loader, "get_source", None)
    return (get_source(spec.name) if get_source is not None else None) or ""
