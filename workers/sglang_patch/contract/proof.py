"""Proves in each process of an engine that the patch is in force there.

SGLang's `HookRegistry` logs a hook that it cannot apply, and goes on. So each rank looks at what SGLang will really call:
at its hooks before it loads a model, at all the rest when its scheduler is built. Then it leaves a file beside its counters,
and the actor serves only if every rank has left one.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.sglang_patch.contract.row import HOOK, OVERRIDE, REPLACEMENT, Device, Row
from workers.sglang_patch.contract.table import rows_of


def require_hooks(device: Device) -> None:
    """Check the hooks of this process, a scheduler that has not loaded its model yet.

    Raises:
        RuntimeError: naming each hook that is not in force.
    """
    _require(absent(rows_of(device, "scheduler", HOOK)))


def prove(scheduler: Any, device: Device, folder: Path, rank: int) -> None:
    """Check everything that must be in force in this process, a complete scheduler, and leave the proof in `folder`.

    Raises:
        RuntimeError: naming each symbol that is not in force.
    """
    worker = scheduler.draft_worker
    rows = rows_of(device, "scheduler", HOOK, REPLACEMENT, OVERRIDE)
    _require(absent(rows, in_use=[type(worker), type(worker.draft_worker)]))
    draft = _proof(folder, rank).with_suffix(".new")
    draft.write_text("\n".join(row.path for row in rows))
    draft.rename(_proof(folder, rank))


def require_proofs(folder: Path, ranks: int, device: Device, in_use: Sequence[type] = ()) -> None:
    """Check this process, the actor, once its engine has started, and the proofs that the ranks have left.

    `in_use` are the classes that SGLang runs in this process in place of its own.

    Raises:
        RuntimeError: naming what is missing, and in which rank.
    """
    here = absent(rows_of(device, "actor", HOOK, REPLACEMENT, OVERRIDE), in_use)
    _require([*here, *missing_proofs(folder, ranks, device)])


def missing_proofs(folder: Path, ranks: int, device: Device) -> list[str]:
    """What the ranks' proofs lack."""
    expected = [row.path for row in rows_of(device, "scheduler", HOOK, REPLACEMENT, OVERRIDE)]
    silent, missing = [], []
    for rank in range(ranks):
        if not _proof(folder, rank).exists():
            silent.append(rank)
        elif lacking := set(expected) - set(_proof(folder, rank).read_text().splitlines()):
            missing.append(f"rank {rank} did not prove {', '.join(sorted(lacking))}")
    if silent:
        missing.append(
            f"tensor-parallel ranks {silent} left no proof: the hook on sglang.srt.managers.scheduler.Scheduler.__init__ is not "
            "in force there, because SGLang did not load the plugin `specfleet` or could not apply it. Install specfleet in the "
            "Python environment of the engine, and let SGLANG_PLUGINS, if it is set, name `specfleet`"
        )
    return missing


def absent(rows: Iterable[Row], in_use: Sequence[type] = ()) -> list[str]:
    """Each of these rows that is not in force in this process: its path, and what is there instead.

    `in_use` are the classes that SGLang runs in place of its own.
    """
    found = []
    for row in rows:
        try:
            _check(row, in_use)
        except (ImportError, AttributeError, LookupError) as error:
            found.append(f"{row.path} ({row.kind.value}): {error}")
    return found


def _require(missing: list[str]) -> None:
    if missing:
        raise RuntimeError(f"the patch of SGLang is not whole: {'; '.join(missing)}")


def _check(row: Row, in_use: Sequence[type]) -> None:
    """Raises ImportError, AttributeError or LookupError, which say what is missing."""
    if row.kind is OVERRIDE:
        _check_override(row, in_use)
        return
    there, ours = _resolve(row.path), _resolve(row.ours)
    if row.kind is HOOK and not any(layer is ours for layer in _layers(there)):
        raise LookupError(f"{row.ours} is not around it")
    if row.kind is REPLACEMENT and there is not ours:
        raise LookupError(f"{there!r} is there, not {row.ours}")


def _check_override(row: Row, in_use: Sequence[type]) -> None:
    owner, _, name = row.ours.rpartition(".")
    worker = _resolve(owner)
    if not any(name in vars(base) for base in worker.__mro__ if base.__module__.startswith("sglang.")):
        raise LookupError(f"SGLang's class has no method {name}")
    runs = [user for user in in_use if issubclass(user, worker)]
    if not runs:
        raise LookupError(f"SGLang runs {' and '.join(map(repr, in_use))}, not {owner}")
    for user in runs:
        if inspect.getattr_static(user, name) is not inspect.getattr_static(worker, name):
            raise LookupError(f"{user!r} has another method in place of {row.ours}")


def _resolve(path: str) -> Any:
    """What a dotted path leads to; a key of a dictionary follows in brackets."""
    name, _, key = path.partition("[")
    found = pkgutil.resolve_name(name)
    return found[key.removesuffix("]")] if key else found


def _layers(function: Any) -> Iterator[Any]:
    """What HookRegistry's wrappers around a function call: each keeps its hook in its closure."""
    while function is not None:
        yield from (cell.cell_contents for cell in getattr(function, "__closure__", None) or ())
        function = getattr(function, "__wrapped__", None)


def _proof(folder: Path, rank: int) -> Path:
    return folder / f"proof{rank}"
