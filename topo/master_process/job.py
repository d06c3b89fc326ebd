"""The job of a master: one topology with everything that its run needs."""

from __future__ import annotations

from msgspec import Struct, field

from topo.plan.physical import PhysicalPlan
from topo.storage.state_folder import TopologyFolder
from topo.storage.submitted import SubmittedTopology
from topo.wire.serializers import SerializerRegistry


class Job(Struct, frozen=True):
    """One topology to run.

    Attributes:
        folder: the topology's files.
        submitted: the submission, with the plan of this run.
        serializers: of the types that tuples carry.
    """

    folder: TopologyFolder
    submitted: SubmittedTopology
    serializers: SerializerRegistry = field(default_factory=SerializerRegistry)

    @property
    def plan(self) -> PhysicalPlan:
        return self.submitted.plan

    @property
    def checkpoints(self) -> str:
        """Path or URL of this run's own folder of checkpoints; empty where none are taken."""
        return self.submitted.checkpoints(self.folder)

    @property
    def is_spread(self) -> bool:
        """Whether workers are on other machines, which may share no disk with this one."""
        return self.submitted.spark is not None
