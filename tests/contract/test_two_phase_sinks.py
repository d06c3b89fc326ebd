"""The project's own sinks keep the contract of `topo.testing.contracts`, which connectors of others use as well."""

from __future__ import annotations

import pytest

from tests.contract.killing import count_file_calls
from tests.contract.test_killed_sinks import spill_early
from tests.contract.two_phase_sinks import KINDS, KindContract, SinkKind
from topo.testing.contracts import ExactlyOnceSinkContract
from topo.testing.contracts.killing import Steps

pytestmark = pytest.mark.integration


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> SinkKind:
    found: SinkKind = request.param
    return found


@pytest.fixture(params=["in memory", "spilled"], autouse=True)
def spilling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that fit into memory, and such that do not."""
    if request.param == "spilled":
        spill_early(monkeypatch.setattr)


class TestTwoPhaseSinks(KindContract, ExactlyOnceSinkContract):
    """`test_killed_sinks.py` kills them at every step; here at some, and within whole topologies."""

    most_kills = 8

    def count_steps(self, package: str, steps: Steps) -> None:
        spill_early(setattr)
        count_file_calls(steps.step)
