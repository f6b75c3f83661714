"""Which room may import which: read from the source, without importing it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("cluster", "serve_app", "workers", "benchmarks", "tests")
SGLANG = ("sglang", "sgl_kernel")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "cluster/messages": ("cluster.messages",),
    "cluster/policy": ("cluster.messages", "cluster.policy"),
    "cluster/routing": ("cluster.messages", "cluster.routing"),
    "cluster/control": ("cluster.messages", "cluster.control", "cluster.policy", "cluster.routing"),
    "cluster/simulation": ("cluster",),
    "serve_app": ("cluster", "serve_app", "workers"),
    "workers": ("cluster.messages", "workers"),
}
"""What each room imports of this project."""

IMPORT_WORKERS = {"serve_app/app.py", "serve_app/configuration.py", "serve_app/controller_deployment.py"}
"""Files of serve_app that may import workers: what builds the application."""

DRIVE_SGLANG = {"benchmarks/policies.py", "tests/worker"}
"""Outside of workers/sglang_patch, who may import SGLang: what compares with it, and tests of the patch."""

INGRESS = ("serve_app/ingress.py", "serve_app/ingress_settings.py", "serve_app/ingress_metrics.py")


@cache
def imports(file: Path) -> frozenset[str]:
    """Full names of all that a file imports, at its top or later."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def files(room: str) -> list[Path]:
    found = sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / room]
    assert found, f"{room} is empty: has it moved?"
    return found


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    wrong = {
        f"{name_of(file)}: {name}"
        for file in files(room)
        for name in imports(file)
        if within(name, OURS) and not within(name, MAY_IMPORT[room])
    }
    assert not wrong


def test_in_serve_app_only_what_builds_the_application_imports_workers() -> None:
    assert {name_of(f) for f in files("serve_app") if any(within(i, ("workers",)) for i in imports(f))} <= IMPORT_WORKERS


@pytest.mark.parametrize("room", OURS)
def test_only_the_patch_imports_sglang(room: str) -> None:
    wrong = {
        name_of(file)
        for file in files(room)
        if any(within(name, SGLANG) for name in imports(file))
        and not name_of(file).startswith(("workers/sglang_patch/", *DRIVE_SGLANG))
    }
    assert not wrong


def test_the_ingress_never_imports_the_policy() -> None:
    """Neither directly nor through another module of this project."""
    seen: set[Path] = set()
    waiting = [ROOT / name for name in INGRESS]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        waiting += [found for name in imports(file) if (found := module_file(name)) is not None]
    reached = {name_of(file) for file in seen}
    assert "serve_app/ingress.py" in reached
    assert not {name for name in reached if name.startswith("cluster/policy/")}


def module_file(name: str) -> Path | None:
    """The file of this project that an imported name is or comes from."""
    if not within(name, OURS):
        return None
    path = ROOT.joinpath(*name.split("."))
    candidates = [path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py"), path.parent / "__init__.py"]
    return next((file for file in candidates if file.is_file()), None)
