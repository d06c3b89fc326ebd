"""Names and keywords in the code that a component can come to: its methods, the functions that they name, and what these name.

Names are resolved in the globals, closures and modules of a function, not by the flow of data: so more is found than is called.
"""

from __future__ import annotations

import dis
import sys
from functools import cached_property, partial, partialmethod
from importlib.util import resolve_name
from inspect import getattr_static
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_MOST_FUNCTIONS = 1000
_BASES = "topo.api."


class CodeReach:
    """Follows code.

    Args:
        all_values: whether classes and objects that a function names are followed, too: all their methods, called or not.

    Attributes:
        words: the names that the code uses, and the keywords ("name=") of its calls.
        is_whole: whether all of it could be followed.
    """

    def __init__(self, *, all_values: bool = False) -> None:
        self.words: set[str] = set()
        self.is_whole = True
        self._all_values = all_values
        self._functions = 0
        self._seen: dict[int, Any] = {}
        """Values by their id; they are kept, so that no id is used again."""
        self._waiting: list[Any] = []

    def follow_class(self, cls: type) -> None:
        """Follow the methods of a class and of its bases, without those of topo's own."""
        self._add_members(cls)
        self._follow()

    def follow_attributes(self, value: object) -> None:
        """Follow the functions and objects that an object holds."""
        self._waiting += _attributes(value).values()
        self._follow()

    def _follow(self) -> None:
        while self._waiting:
            value = self._waiting.pop()
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if self._functions >= _MOST_FUNCTIONS:
                self.is_whole = False
                self._waiting.clear()
            else:
                self._visit(value)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind is FunctionType:
            if not _is_foreign(value.__module__):
                self._functions += 1
                self._visit_function(value)
        elif kind is property:
            self._waiting += [value.fget, value.fset]
        elif kind in (classmethod, staticmethod, MethodType):
            self._waiting.append(value.__func__)
        elif kind is cached_property:
            self._waiting.append(value.func)
        elif kind in (partial, partialmethod):
            self.words.update(f"{name}=" for name in value.keywords)
            self._waiting += [value.func, *value.args]
        elif _attributes(value).get("__wrapped__") is not None:
            self._waiting.append(_attributes(value)["__wrapped__"])
        elif self._all_values and kind is not ModuleType:
            if isinstance(value, type):
                if not _is_foreign(getattr_static(value, "__module__", None)):
                    self._add_members(value)
            elif not _is_foreign(kind.__module__):
                self._add_members(kind)
                self._waiting += _attributes(value).values()

    def _add_members(self, cls: type) -> None:
        for base in cls.__mro__:
            if base is not object and not str(base.__module__).startswith(_BASES):
                self._waiting += vars(base).values()

    def _visit_function(self, function: FunctionType) -> None:
        names: set[str] = set()
        modules: list[ModuleType] = []
        package = function.__globals__.get("__package__") or ""
        self._collect(function.__code__, package, names, modules)
        self.words |= names
        values: list[Any] = [function.__globals__.get(name) for name in names]
        for cell in function.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:
                # The name has no value yet.
                self.is_whole = False
        values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *_attributes(function).values()]
        modules += [value for value in values if isinstance(value, ModuleType)]
        seen: set[int] = set()
        while modules:
            module = modules.pop()
            if id(module) in seen or _is_foreign(module.__name__):
                continue
            seen.add(id(module))
            found = [vars(module)[name] for name in names if name in vars(module)]
            modules += [value for value in found if isinstance(value, ModuleType)]
            values += found
        self._waiting += values

    def _collect(self, code: CodeType, package: str, names: set[str], modules: list[ModuleType]) -> None:
        """Add the names of a function and of the functions in it, their keywords, and the modules that they import."""
        names.update(code.co_names)
        before: tuple[Any, Any] = (None, None)
        for step in dis.get_instructions(code):
            # Up to 3.12 the keywords of a call are an instruction of their own; later they are the constant before it.
            is_call = step.opname == "CALL_KW"
            keywords = code.co_consts[step.arg or 0] if step.opname == "KW_NAMES" else before[1] if is_call else ()
            self.words.update(f"{name}=" for name in keywords or ())
            if step.opname == "IMPORT_NAME":
                self._import(step.argval, before[0], package, modules)
            elif step.opname == "CALL_FUNCTION_EX":
                # `*` and `**`: what they hold is not in the code.
                self.is_whole &= not any("emit" in name for name in (*code.co_names, *code.co_varnames, *code.co_freevars))
            before = (before[1], step.argval)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._collect(constant, package, names, modules)

    def _import(self, name: str, level: Any, package: str, modules: list[ModuleType]) -> None:
        if _is_foreign(name) and not level:
            return
        try:
            found = [sys.modules[resolve_name("." * (level or 0) + name, package)]]
            found += [] if level else [sys.modules[name.partition(".")[0]]]
        except (KeyError, ImportError, TypeError):
            # It is imported when the topology runs.
            self.is_whole = False
        else:
            modules += found


def _attributes(value: object) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _is_foreign(module: Any) -> bool:
    """Return whether a module is one of Python's or topo's own, which emit nothing for a component."""
    root, _, rest = str(module).partition(".")
    return root in sys.stdlib_module_names or (root == "topo" and not rest.startswith("connectors"))
