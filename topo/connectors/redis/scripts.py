"""Scripts that the server runs, each as one step: they stage rows of a transaction, publish them behind a
marker, and move entries that were given up.

A row is a msgpack array: field, value, field, value, ... All may be repeated: a step that was done changes nothing.
"""

from __future__ import annotations

STAGE = """
-- KEYS: list of the transaction, index of lists. ARGV: rows that the list has to have, then rows.
local have = redis.call('LLEN', KEYS[1])
if have ~= tonumber(ARGV[1]) then return have end
for i = 2, #ARGV, 500 do
    redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
redis.call('SADD', KEYS[2], KEYS[1])
return redis.call('LLEN', KEYS[1])
"""
"""Appends rows if the list has as many as is expected; returns how many it has then."""

PUBLISH = """
-- KEYS: stream, list of the transaction, markers, index of lists.
-- ARGV: task, number of the transaction, its rows, rows of a step, length of the stream or ''.
local task, number, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local published = tonumber(redis.call('HGET', KEYS[3], task) or '0')
local done, left, is_other = 0, redis.call('LLEN', KEYS[2]), 0
if published >= number then
    if left == 0 then return {0, 0} end
    -- The last step would have removed the list: the marker is that of another process.
    number, is_other = published, 1
end
local begun = redis.call('HGET', KEYS[3], task .. ':begun')
if begun then
    local rows, key = string.match(begun, '^(%d+) (.*)$')
    if key == KEYS[2] then done = tonumber(rows) end
end
if done + left ~= count then return {-1 - done - left, is_other} end
local rows = redis.call('LRANGE', KEYS[2], 0, tonumber(ARGV[4]) - 1)
for _, row in ipairs(rows) do
    local entry = cmsgpack.unpack(row)
    if ARGV[5] == '' then
        redis.call('XADD', KEYS[1], '*', unpack(entry))
    else
        redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', unpack(entry))
    end
end
if #rows == left then
    redis.call('DEL', KEYS[2])
    redis.call('SREM', KEYS[4], KEYS[2])
    redis.call('HSET', KEYS[3], task, number)
    redis.call('HDEL', KEYS[3], task .. ':begun')
else
    redis.call('LTRIM', KEYS[2], #rows, -1)
    redis.call('HSET', KEYS[3], task .. ':begun', (done + #rows) .. ' ' .. KEYS[2])
end
return {left - #rows, is_other}
"""
"""Moves rows to the stream, unless the marker of the task shows that all were moved. Returns how many are left, or -1 - n where
n rows are found instead of those that were staged; and 1 where another process sets the marker of this task, else 0."""

GIVE_UP = """
-- KEYS: stream, stream of entries that were given up. ARGV: group, id, then fields and values of the copy.
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
return redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
"""
"""Copies an entry, then acknowledges it; nothing if it is not pending. Where the copy is refused, it stays pending."""
