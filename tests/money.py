"""A type of user code whose codec refuses to decode one of its values."""

from __future__ import annotations

from collections.abc import Callable

from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def refuse_zero(data: bytes) -> Money:
    if data == b"0":
        raise ValueError("no money")
    return Money(int(data))


def codec_with(decode: Callable[[bytes], Money]) -> Codec:
    registry = SerializerRegistry()
    registry.register(Money, 40, lambda money: str(money.cents).encode(), decode)
    return Codec(registry)
