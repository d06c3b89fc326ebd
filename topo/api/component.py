"""Components: everything that a topology is built of."""

from __future__ import annotations

from topo.api.bolt import BasicBolt, Bolt
from topo.api.operator_bolts import OperatorBolt
from topo.api.spout import Spout

Component = Spout | Bolt | BasicBolt | OperatorBolt
