"""Fixtures of simulated runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Keep the log empty: stores that fail on purpose would fill it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
