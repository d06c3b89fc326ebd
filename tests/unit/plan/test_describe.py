from __future__ import annotations

import json

from tests.unit.plan.parts import diamond
from topo.plan.describe import as_json, as_mermaid, as_text, placement_text
from topo.plan.parallelism import with_overrides
from topo.plan.physical import physical_plan

PLAN = physical_plan(diamond(workers=2, message_timeout="10s"))


def test_the_text_shows_components_groupings_and_workers() -> None:
    assert as_text(PLAN, {"split": {"acked": 12345, "capacity": 0.51234}}) == (
        """topology word-count: 9 tasks in 2 workers, at_least_once

spout lines x1 (Lines)  [task 1]
    emits (line)
    max_spout_pending=7
bolt split x2 (Split)  [tasks 2-3]
    reads lines: shuffle
    emits (word, length)
    emits directly replies (answer)
    acked 12,345, capacity 0.512
bolt count x3 (Sink)  [tasks 4-6]
    reads split: fields(word)
    tick_interval=1s
bolt audit x2 (Sink)  [tasks 7-8]
    reads lines: all
    reads split replies: direct
    reads split: custom(ByLength)
acker __acker x1  [task 9]

worker 0: lines[0], split[1], count[1], audit[0]
worker 1: split[0], count[0], count[2], audit[1], __acker[0]
"""
    )


def test_the_diagram_shows_spouts_bolts_and_groupings_without_the_ackers() -> None:
    assert as_mermaid(PLAN, {"lines": {"emitted": 1000}}) == (
        """flowchart LR
    c0(["lines x1<br/>emitted 1,000"])
    c1["split x2"]
    c2["count x3"]
    c3["audit x2"]
    c0 -->|"shuffle"| c1
    c1 -->|"fields(word)"| c2
    c0 -->|"all"| c3
    c1 -->|"replies: direct"| c3
    c1 -->|"custom(ByLength)"| c3
"""
    )


def test_the_json_says_all_of_it() -> None:
    data = json.loads(as_json(PLAN, {"count": {"acked": 3}}))
    assert data["name"] == "word-count"
    assert data["settings"] == {"message_timeout": 10.0, "workers": 2}
    split = data["components"][1]
    assert split["inputs"] == [{"source": "lines", "stream": "default", "grouping": "shuffle", "fields": []}]
    assert split["outputs"][1] == {"stream": "replies", "fields": ["answer"], "direct": True}
    assert data["components"][2]["live"] == {"acked": 3}
    assert "live" not in split
    assert data["tasks"][3] == {"id": 4, "component": "count", "index": 0, "worker": 1}
    assert data["workers"][0] == {"worker": 0, "tasks": [1, 3, 5, 7]}


def test_the_text_says_who_has_packed_the_tasks() -> None:
    packed = with_overrides(diamond(), {}, {"count": 20})
    default = "26 tasks in 16 workers (the default on this machine; workers=N takes N, workers=off one for each task)"
    assert placement_text(physical_plan(packed, cores=2)) == default
    assert as_text(physical_plan(packed, cores=2)).startswith(f"topology word-count: {default}, at_least_once\n")
    assert placement_text(physical_plan(packed)) == "26 tasks in 26 workers"
    assert placement_text(PLAN) == "9 tasks in 2 workers"
