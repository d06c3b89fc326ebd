"""A retry book of numbered messages, for its tests."""

from __future__ import annotations

from topo.tracking.retries import RetryBook

Book = RetryBook[int, str]


def emit(book: Book, *message_ids: int) -> list[int]:
    """Emit messages; return the ids of those that the book holds back."""
    return book.emitted(message_ids, [f"message {message_id}" for message_id in message_ids])


def ids(due: list[tuple[int, str]]) -> list[int]:
    return [message_id for message_id, _ in due]
