"""Limits of the batches of a sink that acks a tuple when its batch is published: how many tuples, and how long."""

from __future__ import annotations

from topo.api.context import TaskContext
from topo.errors import ConfigError


def batch_within_pending(context: TaskContext, most: int, setting: str) -> int:
    """Return how many tuples make a batch: at most half of those that may be pending.

    A spout whose messages all wait in a batch would send no more until the next tick.

    Args:
        most: how many are wanted.
        setting: the argument that has this number, for the log.
    """
    pending = context.config.max_spout_pending
    if pending is None or not context.config.ackers or context.config.delivery == "exactly_once":
        return most
    limit = max(1, pending // (2 * context.parallelism))
    if limit < most:
        context.logger.info("batches of %d rows and not %s=%d: max_spout_pending is %d", limit, setting, most, pending)
    return min(limit, most)


def check_batch_age(context: TaskContext, who: str, setting: str) -> None:
    """Check that a batch which waits for the next tick is not taken for lost.

    Raises:
        ConfigError: `message_timeout` is too short.
    """
    tick, timeout = context.config.tick_interval_s, context.config.message_timeout_s
    if context.config.delivery != "exactly_once" and tick and timeout and tick > timeout / 2:
        raise ConfigError(
            f"{who} holds tuples for {tick:g} s, which a message_timeout of {timeout:g} s does not allow: "
            f"lower {setting}, or set message_timeout to at least twice as much"
        )
