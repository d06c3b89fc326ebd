"""The check of a component that an option names."""

from __future__ import annotations

from topo.storage.state_folder import TopologyFolder


def check_component(folder: TopologyFolder, component: str) -> None:
    """Refuse a component that the topology does not have, which would show nothing and explain nothing.

    Raises:
        NotFoundError: with the components that there are.
    """
    from topo.api.topology import ComponentKind
    from topo.errors import NotFoundError
    from topo.storage.state_folder import near_misses
    from topo.storage.submitted import SubmittedTopology

    try:
        plan = SubmittedTopology.read(folder).plan
    except NotFoundError:
        return
    known = [component.id for component in plan.components if component.kind is not ComponentKind.ACKER]
    if component not in known:
        raise NotFoundError(f"there is no component {component!r}; there are {', '.join(known)}.", near_misses(component, known))
