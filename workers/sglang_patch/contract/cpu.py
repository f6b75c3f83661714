"""What lets SGLang run EAGLE-3 on any x86 CPU: kernels that its wheel lacks there, and code that assumes a GPU or AMX."""

from __future__ import annotations

from workers.sglang_patch.contract.row import HOOK, RELIANCE, REPLACEMENT, Row

_SUPPORT = "https://github.com/sgl-project/sglang/pull/27862"
"""SGLang's speculative decoding on CPUs with AMX, whose kernels the packaged ones stand in for."""
_GOES = "When SGLang's wheel holds these kernels for CPUs without AMX."


def _kernel(name: str, caller: str, digest: str) -> tuple[Row, Row]:
    """One of our kernels under the name that SGLang imports, and the function of SGLang that calls it."""
    stand_in = Row(
        f"sgl_kernel.{name}",
        REPLACEMENT,
        "",
        ours=f"workers.sglang_patch.cpu.ops.{name}",
        devices=("cpu",),
        why="SGLang imports it from sgl_kernel, whose wheel needs CUDA's driver library.",
        breaks="The engine does not start on a CPU.",
        goes=_GOES,
        upstream=_SUPPORT,
    )
    called = Row(
        caller,
        RELIANCE,
        digest,
        devices=("cpu",),
        why=f"Calls {name}: with which arguments, and what it expects to be written.",
        breaks="The kernel does not compute what SGLang asks for.",
        goes=_GOES,
    )
    return stand_in, called


_OPS = "sglang.kernels.ops"

ROWS = (
    *_kernel("copy_all_layer_kv_cache_cpu", f"{_OPS}.kvcache.cache_move.copy_all_layer_kv_cache_func", "sha256:d9fbb4b3a29b2b9d"),
    *_kernel("fill_bonus_tokens_cpu", f"{_OPS}.speculative.eagle.fill_bonus_tokens_func", "sha256:2d7129dfa09e2b02"),
    *_kernel(
        "fill_accept_out_cache_loc_cpu", f"{_OPS}.speculative.eagle.fill_accept_out_cache_loc_func", "sha256:6dc07ee3c234da6f"
    ),
    *_kernel(
        "assign_draft_cache_locs_contiguous_cpu",
        f"{_OPS}.speculative.cache_locs.assign_draft_cache_locs_contiguous_func",
        "sha256:fac31ce1dfba5bb3",
    ),
    *_kernel(
        "assign_extend_cache_locs_cpu",
        f"{_OPS}.speculative.cache_locs.assign_extend_cache_locs_func",
        "sha256:3e1426eb94697423",
    ),
    *_kernel(
        "build_tree_kernel_efficient_cpu",
        f"{_OPS}.speculative.spec_tree.build_tree_kernel_efficient_func",
        "sha256:d439d875b62331d3",
    ),
    *_kernel("verify_tree_greedy_cpu", f"{_OPS}.speculative.spec_tree.verify_tree_greedy_func", "sha256:49f6791e00c6e8ba"),
    *_kernel(
        "assign_req_to_token_pool_cpu", "sglang.srt.mem_cache.allocation.assign_req_to_token_pool_func", "sha256:598fab3dd718a36d"
    ),
    *_kernel(
        "build_draft_decode_metadata_cpu",
        "sglang.srt.layers.attention.intel_amx_backend.IntelAMXMultiStepDraftBackend",
        "sha256:95482428f40f0771",
    ),
    Row(
        "sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend",
        RELIANCE,
        "sha256:53c0b0fb51f7f766",
        devices=("cpu",),
        why="Calls torch.ops.sgl_kernel.decode_attention_cpu and extend_attention_cpu, which `cpu.attention` registers.",
        breaks="Attention on a CPU gets arguments that it does not know.",
        goes=_GOES,
        upstream=_SUPPORT,
    ),
    Row(
        "sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS[torch_native]",
        REPLACEMENT,
        "ATTENTION_BACKENDS = {}",
        ours="sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend",
        devices=("cpu",),
        why="SGLang falls back to torch_native without AMX, and that backend knows no speculative decoding.",
        breaks="The first verification on a CPU fails.",
        goes=_GOES,
        # Open: it would refuse, at the start, the combination that this row makes work.
        upstream="https://github.com/sgl-project/sglang/pull/36361",
    ),
    Row(
        "sglang.srt.speculative.draft_utils.DraftBackendFactory._create_backend",
        HOOK,
        "sha256:8be772f2bc074d03",
        ours="workers.sglang_patch.cpu.patch.create_draft_backend",
        devices=("cpu",),
        why="Gives the draft the same backend under the name torch_native.",
        breaks="SGLang refuses EAGLE on torch_native.",
        goes=_GOES,
    ),
    Row(
        "sglang.srt.speculative.eagle_utils.top_k_renorm_prob",
        REPLACEMENT,
        "from sglang.kernels.ops.sampling.renorm import top_k_renorm_prob",
        ours="workers.sglang_patch.cpu.sampling.top_k_renorm_prob",
        devices=("cpu",),
        why="SGLang has this kernel for GPUs only.",
        breaks="Sampling with top_k fails on a CPU.",
        goes="When SGLang verifies sampled tokens on a CPU.",
    ),
    Row(
        "sglang.srt.speculative.eagle_utils.top_p_renorm_prob",
        REPLACEMENT,
        "from sglang.kernels.ops.sampling.renorm import top_p_renorm_prob",
        ours="workers.sglang_patch.cpu.sampling.top_p_renorm_prob",
        devices=("cpu",),
        why="SGLang has this kernel for GPUs only.",
        breaks="Sampling with top_p fails on a CPU.",
        goes="When SGLang verifies sampled tokens on a CPU.",
    ),
    Row(
        "sglang.srt.speculative.eagle_utils.tree_speculative_sampling_target_only",
        REPLACEMENT,
        "from sglang.kernels.ops.speculative.verify_sampling import tree_speculative_sampling_target_only",
        ours="workers.sglang_patch.cpu.patch.accept",
        devices=("cpu",),
        why="SGLang has this kernel for GPUs only.",
        breaks="Sampling at a temperature above 0 fails on a CPU.",
        goes="When SGLang verifies sampled tokens on a CPU.",
    ),
    Row(
        "sglang.srt.speculative.eagle_utils._verify_uses_greedy",
        HOOK,
        "sha256:7b3c3c27bfa07cef",
        ours="workers.sglang_patch.cpu.patch.verify_uses_greedy",
        devices=("cpu",),
        why="SGLang verifies greedily on a CPU, whatever the temperature.",
        breaks="Temperature has no effect on a CPU.",
        goes="When SGLang verifies sampled tokens on a CPU.",
    ),
    Row(
        "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply",
        HOOK,
        "(self, layer, x, bias=None)",
        ours="workers.sglang_patch.cpu.patch.exact_linear",
        devices=("cpu",),
        why="Holds products to shapes under which a row does not depend on the rows beside it.",
        breaks="Text on a CPU may depend on the depth and on other requests, at near ties.",
        goes="When BLAS gives each row the same bits in every shape.",
    ),
    Row(
        "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
        HOOK,
        "(self, hidden_states, lm_head, embedding_bias=None, *, out=None)",
        ours="workers.sglang_patch.cpu.patch.exact_lm_head",
        devices=("cpu",),
        why="As the row above, for the LM head.",
        breaks="As the row above.",
        goes="As the row above.",
    ),
)
