"""Measures the structure of the code base, read from the sources alone: `python scripts/house_figures.py [--details]`.

A rebuild is judged by these figures, so they are taken the same way before and after it. `--details` names what was counted.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]

LAYERS = "tests/structure/test_layers.py"
"""Has the table MAY_IMPORT, which says what an upward import is."""

NOT_COUNTED = {"Exception", "BaseException", "Protocol", "Struct", "Enum", "IntEnum", "NamedTuple", "TypedDict"}
"""Classes that descend from one of these have no inheritance depth."""

BANNED: Mapping[str, str] = {
    "what is/was/has/the/it": r"\bwhat (?:is|was|has|the|it)\b",
    "told": r"\btold\b",
    "tell, tells": r"(?<!\.)\btells?\b",
    "says": r"\bsays\b",
    "said": r"\bsaid\b",
    "hear, heard": r"\bhear[ds]?\b",
    "one that": r"\bone that\b",
    "goes on, go on": r"\bgo(?:es)? on\b",
    "comes again, come again": r"\bcomes? again\b",
    "came again": r"\bcame again\b",
    "in hand": r"\bin hand\b",
    "of its own": r"\bof its own\b",
    "by itself": r"\bby itself\b",
    "is there": r"\bis there\b",
    "anew": r"\banew\b",
    "so long": r"\bso long\b",
    "so many": r"\bso many\b",
    "nobody": r"\bnobody\b",
    "whoever": r"\bwhoever\b",
    "for good": r"\bfor good\b",
    "letter (without dead)": r"(?<!dead[\s_-])\bletters?\b",
    "fates": r"\bfates?\b",
}
"""Words of a private dialect, and the pattern that finds each; upper and lower case count alike."""

Line = tuple[str, object]


@dataclass
class Module:
    """One source file: its name as Python imports it, and what it holds."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def imports(self) -> dict[str, str]:
        """Each imported name as the module sees it, and the full name that it stands for."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return found


@dataclass
class Tree:
    """The modules of the packages `topo` and `topo_cli`."""

    modules: dict[str, Module] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> Tree:
        found = cls()
        for folder, package in (("topo", "topo"), ("cli", "topo_cli")):
            for path in sorted((root / folder).rglob("*.py")):
                parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found.modules[name] = Module(name, path)
        return found

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """The modules that each module imports, those inside of functions included."""
        return {
            name: {self._module_of(full) for full in module.imports.values()} - {"", name}
            for name, module in self.modules.items()
        }

    def _module_of(self, full: str) -> str:
        if full in self.modules:
            return full
        head = full.rpartition(".")[0]
        return head if head in self.modules else ""

    @property
    def product(self) -> list[Module]:
        return list(self.modules.values())

    # -- classes

    @cached_property
    def bases(self) -> dict[str, list[str]]:
        """The full names of each class's bases."""
        found = {}
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    found[f"{module.name}.{node.name}"] = [self._resolve(module, base) for base in node.bases]
        return found

    def _resolve(self, module: Module, base: ast.expr) -> str:
        if isinstance(base, ast.Subscript):
            base = base.value
        name = ast.unparse(base)
        head, _, rest = name.partition(".")
        full = module.imports.get(head)
        if full is None:
            return f"{module.name}.{name}"
        return self._definition(f"{full}.{rest}" if rest else full)

    def _definition(self, full: str) -> str:
        """Follow a name that a module only passes on to the module that defines it."""
        for _ in range(5):
            module, _, name = full.rpartition(".")
            if module not in self.modules or name not in self.modules[module].imports:
                break
            full = self.modules[module].imports[name]
        return full

    def depth(self, name: str) -> int:
        """Return the length of the longest chain of own ancestors; 0 for exceptions, protocols, enums and structs."""
        if self._is_not_counted(name):
            return 0
        return max((1 + self.depth(base) for base in self.bases[name] if base in self.bases), default=0)

    def _is_not_counted(self, name: str) -> bool:
        if name not in self.bases:
            last = name.rpartition(".")[2]
            return last in NOT_COUNTED or last.endswith(("Error", "Warning", "Exception", "Interrupt"))
        return any(self._is_not_counted(base) for base in self.bases[name])

    @cached_property
    def collisions(self) -> dict[str, list[str]]:
        """The names of classes and types that several modules define, and where."""
        found = defaultdict(list)
        for module in self.product:
            for node in module.tree.body:
                for name in _types_defined(node):
                    found[name].append(module.name)
        return {name: places for name, places in sorted(found.items()) if len(places) > 1}

    # -- imports

    @cached_property
    def circles(self) -> list[list[str]]:
        """The sets of modules that import each other, directly or not."""
        reach = {name: self._reachable(name) for name in self.graph}
        found, seen = [], set[str]()
        for name in self.graph:
            if name not in seen:
                circle = sorted(one for one in reach[name] if name in reach[one])
                seen.update(circle)
                found += [circle] if len(circle) > 1 else []
        return found

    def _reachable(self, name: str) -> set[str]:
        found: set[str] = set()
        waiting = set(self._runtime_graph[name])
        while waiting:
            one = waiting.pop()
            found.add(one)
            waiting |= self._runtime_graph[one] - found
        return found

    @cached_property
    def _runtime_graph(self) -> dict[str, set[str]]:
        # A package's `__init__` that only passes names on would tie all that import the package's name into one circle.
        packages = {name for name, module in self.modules.items() if module.path.name == "__init__.py"}
        return {name: there - packages if name not in packages else set() for name, there in self.graph.items()}

    @cached_property
    def upward(self) -> list[str]:
        """Imports that the table of layers does not allow by itself, exceptions included."""
        allowed: dict[str, set[str]] = runpy.run_path(str(ROOT / LAYERS))["MAY_IMPORT"]
        found = set()
        for name, module in self.modules.items():
            here = _layer(name)
            if not name.startswith("topo.") or here not in allowed:
                continue
            for full in module.imports.values():
                there = _layer(self._module_of(full))
                if there and there != here and there not in allowed[here]:
                    found.add(f"{name} -> {self._module_of(full)}")
        return sorted(found)


def _types_defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if re.fullmatch(r"_?[A-Z][a-z]\w*", name) and isinstance(
            node.value, ast.Subscript | ast.BinOp | ast.Name | ast.Attribute
        ):
            yield name


def _layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "topo" else ""


def files(*folders: str, suffix: str = ".py") -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob(f"*{suffix}")) if "__pycache__" not in path.parts]


def lines_of(paths: Iterable[Path]) -> int:
    return sum(path.read_text().count("\n") for path in paths)


def banned_in(paths: Iterable[Path]) -> Counter[str]:
    """Count each banned expression in files; upper and lower case count alike."""
    found = Counter[str]()
    for path in paths:
        text = path.read_text().lower()
        for word, pattern in BANNED.items():
            found[word] += len(re.findall(pattern, text))
    return found


def figures(tree: Tree) -> list[Line]:
    """Return the table: what was measured, and the figure."""
    product = tree.product
    sizes = sorted(module.lines for module in product)
    depths = {name: tree.depth(name) for name in tree.bases}
    commented = _comments(product)
    in_product, in_tests, in_docs = (
        banned_in(files("topo", "cli")),
        banned_in(files("tests")),
        banned_in(files("docs", suffix=".md")),
    )
    product_lines, test_lines = sum(sizes), lines_of(files("tests"))
    return [
        ("product: lines", product_lines),
        ("product: modules", len(product)),
        ("tests with the simulator: lines", test_lines),
        ("simulator: lines", lines_of(files("tests/simulator"))),
        ("tests to product", f"{test_lines / product_lines:.2f}"),
        ("module size: median", int(median(sizes))),
        ("module size: 90 %", sizes[len(sizes) * 9 // 10]),
        ("module size: largest", sizes[-1]),
        ("modules over 450 lines", sum(size > 450 for size in sizes)),
        ("deepest inheritance of own classes", max(depths.values())),
        ("classes with more than two own ancestors", sum(depth > 2 for depth in depths.values())),
        ("import circles", len(tree.circles)),
        ("upward imports (modules)", len(tree.upward)),
        ("names of classes and types defined more than once", len(tree.collisions)),
        ("calls of super(), __init__ aside", sum(_supers(module.tree) for module in product)),
        ("`is_checkpointed` and its kin", sum(len(re.findall(r"\bis_checkpointed\b", module.text)) for module in product)),
        ("comments to lines of code", f"{commented:.1%}"),
        ("banned words: product", sum(in_product.values())),
        ("banned words: tests", sum(in_tests.values())),
        ("banned words: docs", sum(in_docs.values())),
    ]


def _comments(modules: Iterable[Module]) -> float:
    lines = [line.strip() for module in modules for line in module.text.splitlines() if line.strip()]
    return sum(line.startswith("#") for line in lines) / len(lines)


def _supers(tree: ast.Module) -> int:
    """Count calls of `super().method()` other than of `__init__`."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr != "__init__"
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
        for node in ast.walk(tree)
    )


def details(tree: Tree) -> Iterator[str]:
    """Yield what the figures count, by name."""
    yield "\nmodules over 450 lines"
    yield from (
        f"  {module.lines:5} {module.name}" for module in sorted(tree.product, key=lambda m: -m.lines) if module.lines > 450
    )
    yield "\nclasses with more than two own ancestors"
    deep = sorted(((tree.depth(name), name) for name in tree.bases), reverse=True)
    yield from (f"  {depth} {name}" for depth, name in deep if depth > 2)
    yield "\nimport circles"
    yield from (f"  {len(circle):3} {' '.join(circle)}" for circle in tree.circles)
    yield "\nupward imports"
    yield from (f"  {line}" for line in tree.upward)
    yield "\nnames defined more than once"
    yield from (f"  {len(places)} {name}: {' '.join(places)}" for name, places in tree.collisions.items())
    yield "\nbanned words (product, tests, docs)"
    counts = [banned_in(files("topo", "cli")), banned_in(files("tests")), banned_in(files("docs", suffix=".md"))]
    yield from (f"  {word:26} {counts[0][word]:6} {counts[1][word]:6} {counts[2][word]:6}" for word in BANNED)


def main() -> None:
    tree = Tree.read(ROOT)
    table = figures(tree)
    width = max(len(name) for name, _ in table)
    print(f"| {'figure':{width}} | {'value':>8} |\n| {'-' * width} | {'-' * 7}: |")
    for name, value in table:
        print(f"| {name:{width}} | {value!s:>8} |")
    if "--details" in sys.argv[1:]:
        print(*details(tree), sep="\n")


if __name__ == "__main__":
    main()
