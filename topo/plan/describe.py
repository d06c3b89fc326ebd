"""A plan for people and programs: as text, as JSON, and as a Mermaid diagram; with live numbers if there are any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import ComponentKind
from topo.config import SETTINGS, TopologyConfig, shown
from topo.ids import WorkerId
from topo.plan.logical import PlannedComponent, PlannedSubscription
from topo.plan.physical import PhysicalPlan

Live = Mapping[str, Mapping[str, Any]]
"""Numbers to show: component id to name to value."""


def as_text(plan: PhysicalPlan, live: Live | None = None) -> str:
    """Return the plan as indented lines: components with what they read and emit, then the workers with their tasks."""
    lines = [f"topology {plan.name}: {placement_text(plan)}, {plan.config.delivery}", ""]
    for component in plan.components:
        ids = plan.tasks_of(component.id)
        lines.append(f"{component.kind} {component.id} x{component.parallelism}{_code(component)}  [{_ids(ids)}]")
        lines += [f"    reads {s.source}{_stream(s.stream)}: {_grouping(s)}" for s in plan.inputs_of(component.id)]
        if len(component.operators) > 1:
            lines.append(f"    runs {', '.join(component.operators[1:])}")
        if component.takes_columns:
            lines.append("    windows take whole batches")
        for stream in component.streams:
            kind = "emits directly" if stream.direct else "emits batches" if stream.columnar else "emits"
            lines.append(f"    {kind}{_stream(stream.name)} ({', '.join(stream.fields)})")
        if component.settings:
            lines.append("    " + ", ".join(_setting(name, value) for name, value in sorted(component.settings.items())))
        numbers = (live or {}).get(component.id)
        if numbers:
            lines.append("    " + ", ".join(f"{name} {_number(value)}" for name, value in numbers.items()))
    lines.append("")
    for slot, hosted in enumerate(plan.workers):
        names = [f"{plan.task(task).component}[{plan.task(task).index}]" for task in hosted]
        lines.append(f"worker {slot}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _setting(name: str, value: Any) -> str:
    """Return a setting of a component as the user writes it."""
    return f"{name}={value if isinstance(value, Mapping) else shown(SETTINGS[name], value)}"


def placement_text(plan: PhysicalPlan) -> str:
    """Return the numbers of tasks and workers, and why tasks share workers where the user has not asked for that."""
    text = f"{_count(len(plan.tasks), 'task')} in {_count(len(plan.workers), 'worker')}"
    if plan.is_packed_by_default:
        text += " (the default on this machine; workers=N takes N, workers=off one for each task)"
    return text


def as_data(plan: PhysicalPlan, live: Live | None = None) -> dict[str, Any]:
    """Return the plan as JSON values. The names in it are stable."""
    changed = TopologyConfig().settings()
    config = {name: value for name, value in plan.config.settings().items() if value != changed[name]}
    config.pop("delivery", None)
    return {
        "name": plan.name,
        "delivery": plan.config.delivery,
        "settings": config,
        "components": [
            {
                "id": component.id,
                "kind": str(component.kind),
                "class": component.code,
                "parallelism": component.parallelism,
                "max_parallelism": component.max_parallelism,
                "operators": list(component.operators),
                "tasks": list(plan.tasks_of(component.id)),
                "outputs": [{"stream": s.name, "fields": list(s.fields), "direct": s.direct} for s in component.streams],
                "inputs": [
                    {"source": s.source, "stream": s.stream, "grouping": str(s.grouping), "fields": list(s.fields)}
                    for s in plan.inputs_of(component.id)
                ],
                "settings": component.settings,
                **({"live": dict(live[component.id])} if live and component.id in live else {}),
            }
            for component in plan.components
        ],
        "tasks": [
            {"id": task.id, "component": task.component, "index": task.index, "worker": plan.worker_of(task.id)}
            for task in plan.tasks
        ],
        "workers": [{"worker": WorkerId(slot), "tasks": list(hosted)} for slot, hosted in enumerate(plan.workers)],
    }


def as_json(plan: PhysicalPlan, live: Live | None = None) -> str:
    """Return `as_data` as indented JSON text."""
    return json.dumps(as_data(plan, live), indent=2, ensure_ascii=False) + "\n"


def as_mermaid(plan: PhysicalPlan, live: Live | None = None) -> str:
    """Return a Mermaid flow chart of the components. The ackers, which every component talks to, are left out."""
    shown = [component for component in plan.components if component.kind is not ComponentKind.ACKER]
    # Ids such as "end" are words of Mermaid's own, so nodes are named by number.
    nodes = {component.id: f"c{number}" for number, component in enumerate(shown)}
    lines = ["flowchart LR"]
    for component in shown:
        label = f"{component.id} x{component.parallelism}"
        for name, value in (live or {}).get(component.id, {}).items():
            label += f"<br/>{name} {_number(value)}"
        opening, closing = ('(["', '"])') if component.kind is ComponentKind.SPOUT else ('["', '"]')
        lines.append(f"    {nodes[component.id]}{opening}{_escaped(label)}{closing}")
    for s in plan.subscriptions:
        label = _grouping(s) if s.stream == DEFAULT_STREAM else f"{s.stream}: {_grouping(s)}"
        lines.append(f'    {nodes[s.source]} -->|"{_escaped(label)}"| {nodes[s.target]}')
    return "\n".join(lines) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _code(component: PlannedComponent) -> str:
    return f" ({component.code})" if component.code else ""


def _ids(ids: tuple[int, ...]) -> str:
    return f"task {ids[0]}" if len(ids) == 1 else f"tasks {ids[0]}-{ids[-1]}"


def _stream(name: str) -> str:
    return "" if name == DEFAULT_STREAM else f" {name}"


def _grouping(subscription: PlannedSubscription) -> str:
    detail = ", ".join(subscription.fields) or subscription.code
    return f"{subscription.grouping}({detail})" if detail else str(subscription.grouping)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _escaped(label: str) -> str:
    return label.replace('"', "#quot;")
