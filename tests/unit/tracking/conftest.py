from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.tracking.retry_books import Book


@pytest.fixture
def book() -> Iterator[Book]:
    """A retry book whose invariants hold at the end of the test."""
    book = Book()
    yield book
    book.validate()
