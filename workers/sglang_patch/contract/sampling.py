"""What a request says of its tokens and its end, made to hold at any depth."""

from __future__ import annotations

from workers.sglang_patch.contract.row import HOOK, RELIANCE, Row

_MIN_TOKENS = "https://github.com/sgl-project/sglang/pull/33643"
"""Tells that `min_new_tokens` counts steps."""

ROWS = (
    Row(
        "sglang.srt.speculative.eagle_utils.eagle_sample",
        HOOK,
        "sha256:5ff624ffb3b93e21",
        ours="workers.sglang_patch.verification.verify",
        why="Applies penalties position by position before it, and counts the accepted tokens after it. Relies on what it hands "
        "to the kernels that verify: their arguments, and what it expects to be written.",
        breaks="With a penalty or min_tokens the answer depends on the depth.",
        goes="When SGLang's penalizers know of runs, with overlap scheduling too.",
        upstream=_MIN_TOKENS,
    ),
    Row(
        "sglang.srt.sampling.penaltylib.orchestrator.BatchedPenalizerOrchestrator.__init__",
        HOOK,
        "sha256:d2bf7beb2b4125e1",
        ours="workers.sglang_patch.penalties.leave_out_penalizers",
        why="Leaves SGLang's penalizers out: they hear of the last token of a run alone.",
        breaks="Penalties are applied twice.",
        goes="With the hook on `eagle_sample`.",
        upstream=_MIN_TOKENS,
    ),
    Row(
        "sglang.srt.sampling.penaltylib.min_new_tokens.BatchedMinNewTokensPenalizer._prepare",
        RELIANCE,
        "sha256:aa58a258da6551f8",
        why="Says which tokens end an answer; `penalties` reads the same fields.",
        breaks="An answer may end before its min_tokens.",
        goes="With the hook on `eagle_sample`.",
    ),
    Row(
        "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo._apply_pre_grammar_logits_transforms",
        RELIANCE,
        "sha256:9b87b86e964824d5",
        why="Applies `acc_additive_penalties` and `acc_scaling_penalties` to a prefill's logits, in this order.",
        breaks="A request that was retracted forgets its penalties for one token.",
        goes="With the hook on `eagle_sample`.",
    ),
    Row(
        "sglang.srt.managers.scheduler.Scheduler._forward_isolation",
        RELIANCE,
        "sha256:e735ea7a249b8786",
        why="Gives each forward pass sampling parameters of its own, which a prefill's penalties are put into.",
        breaks="A prefill's penalties stay for the steps that follow.",
        goes="With the hook on `eagle_sample`.",
    ),
    Row(
        "sglang.srt.managers.schedule_batch.ReqKvInfo.holds_kv",
        RELIANCE,
        "property (self)",
        why="Says whether a request runs: one that ended or was retracted gives back its row of counts.",
        breaks="Rows of counts are never used again, and memory grows.",
        goes="With the hook on `eagle_sample`.",
    ),
    Row(
        "sglang.srt.speculative.eagle_utils.tree_speculative_sampling_target_only",
        HOOK,
        "from sglang.kernels.ops.speculative.verify_sampling import tree_speculative_sampling_target_only",
        ours="workers.sglang_patch.verification.accept",
        devices=("cuda",),
        why="Verifies with min_p, which SGLang leaves out, and draws by a seed and a position, whatever the depth.",
        breaks="min_p holds for an answer's first token alone; a seed's answer depends on the depth.",
        goes="When SGLang verifies with min_p, and by seeds that do not depend on the number of nodes.",
    ),
    Row(
        "sglang.srt.layers.sampler.multinomial_with_seed",
        RELIANCE,
        "sha256:7bb3c1eaa823ffdb",
        why="Draws by a seed and a position.",
        breaks="A seed's answer depends on something else.",
        goes="With the hook on `tree_speculative_sampling_target_only`.",
    ),
    Row(
        "sglang.srt.managers.schedule_batch.Req.update_finish_state",
        HOOK,
        "sha256:5194e6748230d732",
        ours="workers.sglang_patch.finish.update_finish_state",
        why="Checks an accepted run token by token: the first end in it is the answer's.",
        breaks="A stop string later in a run wins over one, or over an end of text, that comes before it.",
        goes="When SGLang takes the first end in a run.",
    ),
    Row(
        "sglang.srt.managers.schedule_batch.Req.update_reasoning_tokens",
        RELIANCE,
        "sha256:3ca685bb163e44a5",
        why="Counts thoughts in a whole run, before it is known where the answer ends.",
        breaks="`usage` may count more thoughts than the answer has tokens.",
        goes="With the hook on `update_finish_state`.",
    ),
    Row(
        "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor.advance_grammar_fsm",
        RELIANCE,
        "sha256:f8f09d791ba19706",
        why="Has read a whole run, and cut it after the token that completes the grammar, before its end is looked for.",
        breaks="An answer ends at the first token of a run that completes its grammar.",
        goes="With the hook on `update_finish_state`.",
    ),
    Row(
        "sglang.srt.entrypoints.openai.serving_chat.OpenAIServingChat._generate_stream_content",
        HOOK,
        "sha256:335a4ac8cc716418",
        ours="workers.sglang_patch.stream_logprobs.send_all",
        processes=("scheduler", "actor"),
        why="Sends the log probabilities of a step that has no text.",
        breaks="Whether a chat's stream has its last token's log probability depends on the depth.",
        goes="When SGLang sends all log probabilities, whether or not it parses tool calls.",
    ),
    Row(
        "sglang.srt.entrypoints.openai.sse_utils.build_sse_content",
        RELIANCE,
        "(chunk_id, created, model, index, role=None, content=None, reasoning_content=None, finish_reason=None, logprobs=None, "
        "matched_stop=None, usage=None)",
        processes=("actor",),
        why="Makes the event that these are sent in.",
        breaks="Such an event has another form.",
        goes="With the hook on `_generate_stream_content`.",
    ),
)
