"""Type variables and names of types in the calls of streams."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeAlias, TypeVar

from topo.api.bolt import BasicBolt, Bolt
from topo.api.operator_bolts import OperatorBolt
from topo.streams.results import SideOutput, StreamKey

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
K = TypeVar("K", bound=StreamKey)
K2 = TypeVar("K2", bound=StreamKey)
N = TypeVar("N", int, float, Decimal)
C = TypeVar("C", int, float, str, bytes, Decimal, datetime, date, time, timedelta)

SinkBolt: TypeAlias = Bolt | BasicBolt | OperatorBolt
Name: TypeAlias = str | None
Of: TypeAlias = type[R] | None
"""The type of results, where the function does not declare it."""
LateTags: TypeAlias = tuple[SideOutput[T], SideOutput[U]] | None
"""Tags of the side outputs for late records of the left and of the right stream."""
