"""Redis: streams as a source and a target, hashes as a target."""

from topo.connectors.redis.group_spout import RedisGroupSpout
from topo.connectors.redis.hash_sink import RedisSink
from topo.connectors.redis.stream_sink import RedisStreamSink
from topo.connectors.redis.stream_spout import RedisStreamSpout

__all__ = ["RedisGroupSpout", "RedisSink", "RedisStreamSink", "RedisStreamSpout"]
