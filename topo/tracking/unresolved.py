"""Messages of a plain spout that have failed: they are lost unless the spout emits them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class UnresolvedMessages:
    """The messages of one spout task that have failed and have not been emitted again."""

    def __init__(self) -> None:
        self._messages: dict[Any, None] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def failed(self, messages: Iterable[Any]) -> None:
        """Messages have failed: it is up to the spout to emit them again."""
        self._messages.update(dict.fromkeys(messages))

    def emitted(self, messages: Iterable[Any]) -> None:
        """The spout has emitted messages, some of which may have failed before."""
        if self._messages:
            for message in messages:
                self._messages.pop(message, None)
