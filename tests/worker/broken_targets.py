"""Breaks, one after another, what the contract's rows touch in SGLang, and prints as JSON what the proof then says.

Run as a script, with the environment of an engine on the CPU. Each row is broken in a process of its own, forked from one that
has imported SGLang.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pkgutil
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any

from workers.sglang_patch.contract import proof
from workers.sglang_patch.contract.row import HOOK, OVERRIDE, REPLACEMENT, Device, Row
from workers.sglang_patch.contract.table import ROWS, rows_of
from workers.sglang_patch.environment import CPU_ENV

FORK = multiprocessing.get_context("fork")


def said(device: Device) -> list[str]:
    """What the proof says of a scheduler with our workers."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    from workers.sglang_patch import eagle_worker, plugin

    # SGLang fixed its device when it was imported, on the CPU. Our plugin reads it now.
    os.environ[CPU_ENV] = "1" if device == "cpu" else "0"
    plugin.register()
    HookRegistry.apply_hooks()
    in_use = [eagle_worker.DirectedEagleWorker, eagle_worker.DeferringDraftWorker]
    return proof.absent(rows_of(device, "scheduler", HOOK, REPLACEMENT, OVERRIDE), in_use)


def hook_target_renamed(row: Row) -> list[str]:
    owner_path, _, name = row.path.rpartition(".")
    if name == "__init__":  # every class has one: rename the class
        owner_path, _, name = owner_path.rpartition(".")
    owner = pkgutil.resolve_name(owner_path)
    for holder in owner.__mro__[:-1] if isinstance(owner, type) else [owner]:
        if name in vars(holder):
            setattr(holder, f"{name}_renamed", vars(holder)[name])
            delattr(holder, name)
    return said(row.devices[0])


def hook_left_unregistered(row: Row) -> list[str]:
    from workers.sglang_patch import plugin

    plugin.ROWS = tuple(other for other in ROWS if other is not row)
    return said(row.devices[0])


def replacement_taken_back(row: Row) -> list[str]:
    said(row.devices[0])
    name, _, key = row.path.partition("[")
    if key:
        pkgutil.resolve_name(name)[key.removesuffix("]")] = object()
    else:
        owner, _, attribute = name.rpartition(".")
        setattr(pkgutil.resolve_name(owner), attribute, object())
    return said_again(row)


def said_again(row: Row, in_use: list[type] | None = None) -> list[str]:
    """What the proof says now, of this row's kind alone."""
    return proof.absent(rows_of(row.devices[0], row.processes[0], row.kind), in_use or [])


def method_replaced(row: Row) -> list[str]:
    owner, _, name = row.ours.rpartition(".")
    ours = pkgutil.resolve_name(owner)
    other = type("Other", (ours,), {name: lambda self: None})
    rows = rows_of(row.devices[0], row.processes[0], OVERRIDE)
    return proof.absent([row for row in rows if row.ours.rpartition(".")[0] == owner], [other])


def sglang_worker_in_use(row: Row) -> list[str]:
    owner, _, _ = row.ours.rpartition(".")
    return said_again(row, [pkgutil.resolve_name(owner).__mro__[1]])


def in_child(work: Callable[..., list[str]], *args: Any) -> list[str]:
    """What `work` returns in a process of its own."""
    ours, theirs = FORK.Pipe(duplex=False)

    def run(connection: Connection) -> None:
        connection.send(work(*args))

    child = FORK.Process(target=run, args=(theirs,))
    child.start()
    theirs.close()
    found: list[str] = ours.recv()
    child.join()
    return found


def overridden() -> list[str]:
    """Methods of our classes that SGLang's have too."""
    from workers.sglang_patch.eagle_worker import DeferringDraftWorker, DirectedEagleWorker
    from workers.sglang_patch.serving_errors import AbortErrors, Chat, Completions, ServingErrors

    return [
        f"{worker.__module__}.{worker.__qualname__}.{name}"
        for worker in (DirectedEagleWorker, DeferringDraftWorker, ServingErrors, Chat, Completions, AbortErrors)
        for name, member in vars(worker).items()
        if isinstance(member, FunctionType | property) and hasattr(super(worker, worker), name)
    ]


def main() -> None:
    from workers.sglang_patch import eagle_worker, serving_errors  # noqa: F401

    for row in ROWS:
        if row.kind is HOOK:
            pkgutil.resolve_name(row.path)
    breaks = {HOOK: [hook_target_renamed, hook_left_unregistered], REPLACEMENT: [replacement_taken_back]}
    breaks[OVERRIDE] = [method_replaced, sglang_worker_in_use]
    answers: dict[str, Any] = {f"whole {device}": in_child(said, device) for device in ("cpu", "cuda")}
    for row in ROWS:
        for broken in breaks.get(row.kind, []):
            answers[f"{broken.__name__} {row.path}"] = in_child(broken, row)
    print(json.dumps({**answers, "overridden": overridden()}))


if __name__ == "__main__":
    main()
