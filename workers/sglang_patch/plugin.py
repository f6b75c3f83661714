"""SGLang's plugin entry point: puts the patch into the scheduler processes of specfleet's own engines.

SGLang only logs a plugin that fails, so nothing here is proof: the actor proves by readback that the patch is in force.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

COUNTERS_ENV = "SPECFLEET_COUNTERS"
"""Folder in shared memory where each rank keeps its counters. Set only by `EngineActor`, so that any other SGLang
process in the same Python environment stays as it is."""


def register() -> None:
    """Hook the worker class and the way that directives come in."""
    if COUNTERS_ENV not in os.environ:
        return
    if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
        from workers.sglang_patch import cpu

        cpu.install()
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker", _create_worker, HookType.AROUND)
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.__init__", _start, HookType.AROUND)
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.set_internal_state", _set_internal_state, HookType.AROUND)
    model = "sglang.srt.configs.model_config.ModelConfig"
    HookRegistry.register(f"{model}._derive_context_length", _derive_context_length, HookType.AROUND)
    grammar = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar"
    HookRegistry.register(f"{grammar}.apply_vocab_mask", _apply_vocab_mask, HookType.AROUND)
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        module = "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner"
        HookRegistry.register(f"{module}.EagleDraftExtendInputBuffers.share_buffers", _share_buffers, HookType.AROUND)


def _start(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """Note why a scheduler fails to start: SGLang writes it to this process's log alone."""
    from workers.sglang_patch import start_progress

    try:
        original(scheduler, *args, **kwargs)
    except Exception as error:
        start_progress.fail(error)
        raise


def _derive_context_length(original: Any, config: Any, context_length: int | None) -> None:
    """Let a draft follow its target to the end of the target's context.

    Published EAGLE-3 drafts name the length that they were trained at, 2,048 tokens, and SGLang would refuse them. Further on
    they draft worse, which is measured like anything else.
    """
    from sglang.srt.environ import envs

    with envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.override(True) if config.is_draft_model else nullcontext():
        original(config, context_length)


def _share_buffers(original: Any, buffers: Any, *, exclude: Any = ()) -> None:
    """Keep a draft-extend graph's own lengths to itself.

    Graph runners share buffers of one name and size. Those of the draft-extend graph are filled with the width that the
    runner captures (depth + 1), so a runner of another depth that took them over would capture with lengths of more
    tokens than it has: attention then reads beyond its input. docs/zero_step_capture.md has the whole story.
    """
    original(buffers, exclude={*exclude, "extend_seq_lens", "num_correct_drafts", "num_accept_tokens"})


def _apply_vocab_mask(original: Any, grammar: Any, logits: Any, vocab_mask: Any) -> None:
    """Where a grammar allows no token at all, leave them all.

    Without any, sampling fails, and with it the scheduler and everybody's requests. So the grammar refuses whatever is
    sampled instead, and SGLang ends that request alone.
    """
    none_left = ~vocab_mask.any(dim=-1, keepdim=True)
    original(grammar, logits, vocab_mask.masked_fill(none_left, -1))


def _create_worker(original: Any, algorithm: Any, server_args: Any) -> Any:
    worker = original(algorithm, server_args)
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    if worker is not EAGLEWorkerV2:
        return worker
    from workers.sglang_patch.eagle_worker import DirectedEagleWorker

    return DirectedEagleWorker


def _set_internal_state(original: Any, scheduler: Any, request: Any) -> Any:
    from workers.sglang_patch.eagle_worker import set_internal_state

    return set_internal_state(original, scheduler, request)
