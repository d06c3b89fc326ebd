"""Tokens of OAUTHBEARER, which a function of the user's gives. The client reports that none came, and not why."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real
from typing import Any

_TAKES = "return (token, when it expires), in seconds since 1970"
_YEARS_S = 1e9
"""No token is valid for thirty years: an expiry beyond is in milliseconds, and the client would ask for no other token."""


class TokenCallback:
    """The user's `oauth_cb`.

    Attributes:
        failure: the exception of the last call; None where it gave a token.
    """

    def __init__(self, call: Callable[[str], Any]) -> None:
        self._call = call
        self.failure: Exception | None = None

    def __call__(self, config: str) -> Any:
        """Return token and expiry, in seconds since 1970, and further values that the function gives. Its exceptions pass."""
        try:
            found = self._call(config)
            if not (isinstance(found, tuple) and len(found) > 1 and isinstance(found[0], str) and isinstance(found[1], Real)):
                raise TypeError(f"it returned a {type(found).__name__}; {_TAKES}")
            left_s = float(found[1]) - time.time()
            if not 0 < left_s < _YEARS_S:
                raise ValueError(f"its token {f'expired {-left_s:.0f} s ago' if left_s <= 0 else 'never expires'}; {_TAKES}")
        except Exception as error:
            self.failure = error
            raise
        self.failure = None
        return found
