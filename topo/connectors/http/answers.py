"""What an answer to a request means for its row: done, sent again after a pause, or refused. Without any I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from topo.connectors.tls import tls_advice

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
RETRY_ON = (429, 500, 502, 503, 504)


def missing_answer(error: BaseException, url: str) -> str:
    """Return why a request has no answer, and what mends it where that is its TLS."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    scheme = "ws://" if url.lower().startswith("ws") else "http://"
    advice = tls_advice(error, "SSL_CERT_FILE in the environment of the workers", "that of a proxy that you put between", scheme)
    return f"{text}; {advice}" if advice else text


def is_success(status: int) -> bool:
    """Whether the receiver has taken the row."""
    return 200 <= status < 300


def retry_after_s(header: str | None, date: str | None) -> float | None:
    """Return the seconds that a receiver asks to wait; None where it does not, or not in a readable way.

    Args:
        header: its Retry-After: whole seconds, or a date.
        date: its Date, by whose clock the date counts.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        then, now = _moment(text), _moment(date or "")
    except ValueError:
        return None
    return max(0.0, (then - now).total_seconds())


def _moment(text: str) -> datetime:
    found = parsedate_to_datetime(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """When a request is sent again.

    Attributes:
        retry_on: statuses.
        retry_for_s: after that time the row fails.
    """

    retry_on: Collection[int]
    retry_for_s: float

    def pause_s(self, attempt: int, spent_s: float, status: int | None, asked_s: float | None) -> float | None:
        """Return the pause before the next attempt; None: there is none.

        Args:
            attempt: number of the attempt that was made last, from 1.
            spent_s: seconds since the first one has begun.
            status: of its answer; None where there was none, such as after a lost connection.
            asked_s: the seconds that the receiver asks to wait; the first pause is the least. Where less time is left it is
                waited, since a row that fails at once is replayed at once.
        """
        if status is not None and status not in self.retry_on:
            return None
        left_s = self.retry_for_s - spent_s
        if asked_s is not None:
            pause_s = max(min(asked_s, left_s), FIRST_PAUSE_S)
        else:
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 10), LONGEST_PAUSE_S)
        return pause_s if pause_s <= left_s else None
