"""All rows of the contract."""

from __future__ import annotations

from workers.sglang_patch.contract import actor, cpu, draft, eagle, sampling, scheduler
from workers.sglang_patch.contract.row import Device, Kind, Process, Row

ROWS: tuple[Row, ...] = (*scheduler.ROWS, *eagle.ROWS, *sampling.ROWS, *draft.ROWS, *cpu.ROWS, *actor.ROWS)


def rows_of(device: Device, process: Process, *kinds: Kind) -> list[Row]:
    """Rows of some kinds that must be in force in a process of an engine on `device`."""
    return [row for row in ROWS if device in row.devices and process in row.processes and row.kind in kinds]
