"""The log of a script: what happened in order, with names for the ids that are drawn by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable

REPLAY = 1 << 63
Entry = str | Callable[[], str]


class Log:
    """What happened, in order. Lines that name ids are written at the end, when all edges are known."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._roots: dict[int, str] = {}
        self._edges: dict[int, list[tuple[str, int]]] = {}
        self._counts = {"in": 0, "out": 0}

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def user(self, text: str) -> None:
        self.add(f"  user   {text}")

    def root(self, root: int) -> str:
        """Return the name of a root; the first call for it gives it one."""
        base = root & ~REPLAY
        if base not in self._roots:
            self._roots[base] = f"r{len(self._roots) + 1}"
        return self._roots[base] + ("!" if root & REPLAY else "")

    def root_called(self, name: str) -> int:
        """Return the root of a name."""
        return next(root for root, known in self._roots.items() if known == name)

    def edge(self, kind: str, roots: Iterable[int], edge: int) -> None:
        """Note an edge, "in" or "out", of a row that descends from these roots."""
        self._counts[kind] += 1
        for root in roots:
            self._edges.setdefault(root, []).append((f"{kind}{self._counts[kind]}", edge))

    def edge_name(self, root: int, edge: int) -> str:
        """Return the name of one edge of a root."""
        return next((name for name, known in self._edges.get(root, []) if known == edge), "?")

    def made_of(self, root: int, value: int) -> str:
        """Return which edges of a root the XOR is made of; random edges leave one answer."""
        if not value:
            return "0"
        rows: list[tuple[int, frozenset[str]]] = []
        for name, edge in self._edges.get(root, []):
            names = frozenset({name})
            for other, mask in rows:
                if edge ^ other < edge:
                    edge, names = edge ^ other, names ^ mask
            if edge:
                rows.append((edge, names))
                rows.sort(reverse=True)
        found: frozenset[str] = frozenset()
        for edge, names in rows:
            if value ^ edge < value:
                value, found = value ^ edge, found ^ names
        return "^".join(sorted(found, key=lambda name: (name.rstrip("0123456789"), len(name), name))) if not value else "?"

    @property
    def text(self) -> str:
        return "".join(f"{entry if isinstance(entry, str) else entry()}".rstrip() + "\n" for entry in self._entries)
