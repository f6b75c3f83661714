"""Hooks on SGLang's scheduler: its start, the worker that it makes, and the tables that it is sent.

The EAGLE worker is imported only when a scheduler needs it: its imports initialise CUDA.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workers.sglang_patch import start_progress, table_encoding
from workers.sglang_patch.contract import proof
from workers.sglang_patch.environment import COUNTERS_ENV, device


def start(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """Start a scheduler only if the patch is whole. Note why it fails to start: SGLang writes that to its own log alone."""
    try:
        proof.require_hooks(device())
        original(scheduler, *args, **kwargs)
        from sglang.srt.runtime_context import get_parallel

        proof.prove(scheduler, device(), Path(os.environ[COUNTERS_ENV]), get_parallel().tp_rank)
    except Exception as error:
        start_progress.note_failure(error)
        raise


def create_worker(original: Any, algorithm: Any, server_args: Any) -> Any:
    """Return `DirectedEagleWorker` where SGLang would run `EAGLEWorkerV2`."""
    worker = original(algorithm, server_args)
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    if worker is not EAGLEWorkerV2:
        return worker
    from workers.sglang_patch.eagle_worker import DirectedEagleWorker

    return DirectedEagleWorker


def set_internal_state(original: Any, scheduler: Any, request: Any) -> Any:
    """Put the table that a request carries in force; leave any other request to SGLang."""
    if (decoded := table_encoding.decode(request.server_args)) is None:
        return original(scheduler, request)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    scheduler.draft_worker.put_table(*decoded)
    return SetInternalStateReqOutput(updated=True)
