"""Makes SGLang use what this package gives it. Importing this imports sglang.

`apply` puts functions in place of SGLang's; the other functions are hooks, which `plugin.register` registers. The contract's
rows for the CPU (`workers.sglang_patch.contract.cpu`) say why each is needed.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.intel_amx_backend import IntelAMXAttnBackend
from sglang.srt.speculative import eagle_utils
from torch import Tensor

from workers.sglang_patch import verification
from workers.sglang_patch.cpu import sampling
from workers.sglang_patch.cpu.exact import fill_rows


def apply() -> None:
    """Replace SGLang's backend without AMX, and the sampling kernels that it has for GPUs only."""
    ATTENTION_BACKENDS["torch_native"] = IntelAMXAttnBackend
    eagle_utils.top_k_renorm_prob = sampling.top_k_renorm_prob
    eagle_utils.top_p_renorm_prob = sampling.top_p_renorm_prob
    eagle_utils.tree_speculative_sampling_target_only = accept


def accept(**case: Any) -> None:
    """Accept drafted tokens that were sampled, by a kernel of ours."""
    verification.accept(sampling.chain_sampling_target_only, **case)


def create_draft_backend(original: Any, factory: Any, name: str, backends: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Give the draft the backend that `apply` gives the target."""
    return original(factory, name, {**backends, "torch_native": backends["intel_amx"]}, *args, **kwargs)


def verify_uses_greedy(original: Any, **case: Any) -> Any:
    """Sample on a CPU where a GPU would: SGLang verifies greedily there, whatever the temperature."""
    return original(**{**case, "is_cpu": False})


def exact_linear(original: Any, method: Any, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product in which no row depends on the rows beside it: see `workers.sglang_patch.cpu.exact`."""
    product: Tensor = original(method, layer, fill_rows(x), bias)
    return product[: x.shape[0]]


def exact_lm_head(original: Any, processor: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """As `exact_linear`, for the LM head."""
    logits: Tensor = original(processor, fill_rows(hidden), *args, **kwargs)
    return logits[: hidden.shape[0]]
