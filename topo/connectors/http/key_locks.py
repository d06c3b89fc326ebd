"""Locks by key, which keep the order of those who wait and are forgotten when none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class KeyLocks:
    """A lock for each key that is in use. All on one loop."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}
        """The lock of a key, and how many hold it or wait for it."""

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the lock of a key. It is given to those who wait in the order in which they came."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users > 1:
                self._locks[key] = lock, users - 1
            else:
                del self._locks[key]
