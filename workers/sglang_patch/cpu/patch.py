"""Makes SGLang use what this package gives it. Importing this imports sglang."""

from __future__ import annotations

from functools import cache
from typing import Any

from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.intel_amx_backend import IntelAMXAttnBackend
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.speculative import eagle_utils
from sglang.srt.speculative.draft_utils import DraftBackendFactory
from torch import Tensor

from workers.sglang_patch.cpu import sampling
from workers.sglang_patch.cpu.exact import fill_rows


@cache
def apply() -> None:
    """Patches SGLang, once in a process."""
    _use_amx_backend_without_amx()
    _sample_when_verifying()
    _keep_products_exact()


def _use_amx_backend_without_amx() -> None:
    """`torch_native`, what SGLang falls back to without AMX, knows no speculative decoding."""
    ATTENTION_BACKENDS["torch_native"] = IntelAMXAttnBackend
    create = DraftBackendFactory._create_backend

    def create_backend(factory: DraftBackendFactory, name: str, backends: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return create(factory, name, {**backends, "torch_native": backends["intel_amx"]}, *args, **kwargs)

    DraftBackendFactory._create_backend = create_backend


def _sample_when_verifying() -> None:
    """SGLang verifies greedily on a CPU, whatever the temperature, because it has no kernels for the rest there."""
    eagle_utils.top_k_renorm_prob = sampling.top_k_renorm_prob
    eagle_utils.top_p_renorm_prob = sampling.top_p_renorm_prob
    eagle_utils.tree_speculative_sampling_target_only = sampling.chain_sampling_target_only
    uses_greedy = eagle_utils._verify_uses_greedy
    eagle_utils._verify_uses_greedy = lambda **case: uses_greedy(**{**case, "is_cpu": False})


def _keep_products_exact() -> None:
    """The text must not depend on the depth, nor on the requests beside it: see `workers.sglang_patch.cpu.exact`."""
    linear, lm_head = UnquantizedLinearMethod.apply, LogitsProcessor._compute_lm_head

    def exact_linear(method: UnquantizedLinearMethod, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(method, layer, fill_rows(x), bias)[: x.shape[0]]

    def exact_lm_head(processor: LogitsProcessor, hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return lm_head(processor, fill_rows(hidden), *args, **kwargs)[: hidden.shape[0]]

    UnquantizedLinearMethod.apply = exact_linear
    LogitsProcessor._compute_lm_head = exact_lm_head
