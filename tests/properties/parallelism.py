"""Keys, fields and numbers of tasks that several properties draw from."""

from __future__ import annotations

from hypothesis import strategies as st

FIELDS = ("key", "n")
MOST_TASKS = 4

parallelisms = st.sampled_from([1, 1, 2, 3, MOST_TASKS])
keys = st.sampled_from(["A", "B", "other", "C", "D"])
