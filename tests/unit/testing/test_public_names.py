from __future__ import annotations

import subprocess
import sys

import pytest

import topo.testing
from topo.launch.local_cluster import LocalCluster


def test_all_public_names_are_there_and_documented() -> None:
    for name in topo.testing.__all__:
        value = getattr(topo.testing, name)
        assert value.__doc__, f"{name} has no docstring"
    assert topo.testing.LocalCluster is LocalCluster
    with pytest.raises(AttributeError, match="has no attribute 'Cluster'"):
        topo.testing.Cluster  # noqa: B018


def test_the_kit_brings_neither_sockets_nor_pytest_with_it() -> None:
    program = "import sys, topo.testing; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert {"zmq", "pytest", "psutil", "asyncio", "multiprocessing", "subprocess"} & set(loaded) == set()


def test_the_fixtures_can_be_imported_without_pytest() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "import topo.testing.fixtures as fixtures; print(hasattr(fixtures, 'local_cluster'), fixtures.cluster_of_its_own)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("False")
