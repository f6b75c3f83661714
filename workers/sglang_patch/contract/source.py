"""Reads SGLang's installed source without importing it: the modules for GPUs cannot be imported on every machine."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from workers.sglang_patch.contract.row import Device, Row
from workers.sglang_patch.contract.table import ROWS

HASH = "sha256:"
_DIGITS = 16
_DECORATORS = {"property", "staticmethod", "classmethod", "cached_property"}


def require_wheel(device: Device) -> None:
    """Check that the installed SGLang is the one that the patch was written for. Takes about a second.

    Raises:
        RuntimeError: naming each symbol that differs.
    """
    if found := differences(row for row in ROWS if device in row.devices):
        raise RuntimeError(f"the patch does not fit the installed SGLang {version('sglang')}: {'; '.join(found)}")


def differences(rows: Iterable[Row]) -> list[str]:
    """For each row that the installed SGLang does not meet: its path, what was expected and what is there."""
    found = []
    for row in rows:
        if not row.expected:
            continue
        try:
            actual = describe(row.path, hashed=row.expected.startswith(HASH))
        except LookupError as error:
            found.append(f"{row.path}: {error}")
            continue
        if actual != row.expected:
            found.append(f"{row.path}: expected {row.expected}, found {actual}")
    return found


def describe(path: str, hashed: bool = False) -> str:
    """Describe a symbol: a digest of its source, or its signature without annotations, or the line that assigns it.

    Raises:
        LookupError: if SGLang has no such symbol.
    """
    module, names = _split(path.partition("[")[0])
    found = _find(module, names)
    if not hashed:
        return _signature(found.statement)
    digest = hashlib.sha256(found.text.encode()).hexdigest()
    return HASH + digest[:_DIGITS]


@dataclass(frozen=True)
class _Module:
    name: str
    tree: ast.Module
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    module: _Module
    statement: ast.stmt

    @property
    def text(self) -> str:
        """Source lines, decorators included."""
        first = min([self.statement.lineno, *(d.lineno for d in getattr(self.statement, "decorator_list", []))])
        return "\n".join(self.module.lines[first - 1 : self.statement.end_lineno])


def _split(path: str) -> tuple[_Module, list[str]]:
    """The longest part of a path that is a module, and the names that are left."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if (module := _module(".".join(parts[:length]))) is not None:
            return module, parts[length:]
    raise LookupError("no such module")


@cache
def _module(name: str) -> _Module | None:
    package, *rest = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    base = Path(spec.submodule_search_locations[0]).joinpath(*rest)
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            text = file.read_text()
            return _Module(name, ast.parse(text), tuple(text.splitlines()))
    return None


def _find(module: _Module, names: list[str]) -> _Found:
    """Follow names from a module into its classes, and through imports and base classes to where they are defined."""
    if not names:
        raise LookupError("it is a module, not a symbol in one")
    found = _named(module, module.tree.body, names[0])
    for name in names[1:]:
        found = _member(_defined(found), name)
    return found


def _named(module: _Module, body: list[ast.stmt], name: str, but: ast.stmt | None = None) -> _Found:
    here = [statement for statement in _statements(body) if statement is not but and name in _names(statement)]
    if not here:
        raise LookupError(f"SGLang has no {name} there")
    # A module may import, for type checking, what it defines itself.
    return _Found(module, min(here, key=lambda statement: isinstance(statement, ast.ImportFrom)))


def _defined(found: _Found) -> _Found:
    """Where an imported name is defined."""
    while isinstance(found.statement, ast.ImportFrom):
        imported, (name, *_) = found.statement, [alias.name for alias in found.statement.names]
        module, _ = _split(f"{imported.module}.{name}")
        found = _named(module, module.tree.body, name)
    return found


def _member(owner: _Found, name: str) -> _Found:
    """A member of a class: in its body, in a base, or assigned to `self`."""
    statement = owner.statement
    if not isinstance(statement, ast.ClassDef):
        raise LookupError(f"not a class, so it has no {name}")
    try:
        return _named(owner.module, statement.body, name)
    except LookupError:
        pass
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AnnAssign) and f"self.{name}" in _targets(node):
            return _Found(owner.module, node)
    for base in statement.bases:
        if isinstance(base, ast.Name):
            try:
                return _member(_defined(_named(owner.module, owner.module.tree.body, base.id, but=statement)), name)
            except LookupError:
                continue
    raise LookupError(f"SGLang has no {name} there")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, including those under `if`, `try` and `with`. An import of several names becomes one of each."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With):
            parts = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
            parts += [handler.body for handler in getattr(statement, "handlers", [])]
            for part in parts:
                yield from _statements(part)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                yield ast.copy_location(ast.ImportFrom(statement.module, [alias], statement.level), statement)
        else:
            yield statement


def _names(statement: ast.stmt) -> list[str]:
    """Names that a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    return _targets(statement)


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        return [ast.unparse(target) for target in statement.targets]
    return [ast.unparse(statement.target)] if isinstance(statement, ast.AnnAssign) else []


def _signature(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ClassDef):
        return f"class({', '.join(ast.unparse(base) for base in statement.bases)})"
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.unparse(statement)
    arguments = statement.args
    bare = ast.arguments(
        posonlyargs=[ast.arg(a.arg) for a in arguments.posonlyargs],
        args=[ast.arg(a.arg) for a in arguments.args],
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(a.arg) for a in arguments.kwonlyargs],
        kw_defaults=arguments.kw_defaults,
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=arguments.defaults,
    )
    marks = [name for d in statement.decorator_list if (name := ast.unparse(d)) in _DECORATORS]
    marks += ["async"] if isinstance(statement, ast.AsyncFunctionDef) else []
    return " ".join([*marks, f"({ast.unparse(bare)})"])
