"""Every test of this folder runs against each implementation of `topo.hot`; the fixture `hot` is its module.

Where the compiled one was not built its tests are skipped; with TOPO_REQUIRE_COMPILED=1 that is an error, unless TOPO_PURE=1
asks for the plain one.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

import pytest

from topo.hot import plain


def compiled() -> ModuleType:
    """Return the plain names with the compiled ones in place of those that have both."""
    twin, both = import_module("topo.hot.compiled"), ModuleType("compiled")
    vars(both).update({name: getattr(plain, name) for name in plain.__all__})
    vars(both).update({name: getattr(twin, name) for name in twin.__all__})
    return both


IMPLEMENTATIONS = {"plain": lambda: plain, "compiled": compiled}


@pytest.fixture(scope="session", params=IMPLEMENTATIONS)
def hot(request: pytest.FixtureRequest) -> ModuleType:
    try:
        return IMPLEMENTATIONS[request.param]()
    except ImportError as error:
        if os.environ.get("TOPO_REQUIRE_COMPILED") and not os.environ.get("TOPO_PURE"):
            raise
        pytest.skip(f"not built ({error}); make setup builds it where there is a C compiler")
