"""What users do in async bolts, and the answer that they get."""

from __future__ import annotations

from typing import Any

from topo import AsyncBolt, FixedDelayRetry
from topo.testing import OperatorHarness


def test_the_last_input_of_a_file_is_retried_as_every_other_one() -> None:
    """The user sets retries, and the service hangs up on the last row of a bounded input."""

    class Flaky(AsyncBolt):
        outputs = ("answer",)
        tries = 0

        def __init__(self) -> None:
            super().__init__(retry=FixedDelayRetry(3, "1s", if_error=lambda error: isinstance(error, OSError)))

        async def call(self, tup: Any) -> Any:
            self.tries += 1
            if self.tries < 4:
                raise ConnectionResetError
            return (tup["id"],)

    with OperatorHarness(Flaky(), fields=("id",)) as harness:
        harness.process((1,))
        harness.end_of_input()
        assert harness.outputs == [((1,), None)]
