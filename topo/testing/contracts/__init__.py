"""The promises of connectors to the engine, as tests that a connector's own test suite takes over by one import.

    from topo.testing.contracts import ExactlyOnceSinkContract

    class TestLedger(ExactlyOnceSinkContract):
        def sink(self, folder):
            return Ledger(folder / "db")

        def rows(self, folder):
            return read_ledger(folder / "db")

Needs pytest. docs/connectors.md shows a source and a sink with their tests.
"""

from pytest import register_assert_rewrite

# Before the tests are imported: an assertion that fails then shows its values.
_PARTS = ("checkpoints", "partitioned_spouts", "sink_contract", "sink_lives", "sinks")
register_assert_rewrite(*[f"{__name__}.{part}" for part in _PARTS])

from topo.testing.contracts.partitioned_spouts import PartitionedSpoutContract, SourceUnderTest  # noqa: E402
from topo.testing.contracts.sink_contract import PublishesBy  # noqa: E402
from topo.testing.contracts.sinks import AtLeastOnceSinkContract, ExactlyOnceSinkContract  # noqa: E402

__all__ = [
    "AtLeastOnceSinkContract",
    "ExactlyOnceSinkContract",
    "PartitionedSpoutContract",
    "PublishesBy",
    "SourceUnderTest",
]
