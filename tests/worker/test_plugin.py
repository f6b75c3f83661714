"""What the plugin does around SGLang's own functions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.environ import envs

from workers.sglang_patch import plugin, start_progress
from workers.sglang_patch.plugin import COUNTERS_ENV


@pytest.mark.parametrize("draft", [True, False])
def test_a_draft_may_have_less_context_than_its_target_and_a_target_no_more_than_its_own(draft: bool) -> None:
    allowed = []

    def derive(config: Any, context_length: int) -> None:
        allowed.append((envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get(), context_length))

    plugin._derive_context_length(derive, SimpleNamespace(is_draft_model=draft), 4096)
    assert allowed == [(draft, 4096)]
    assert not envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get()


def test_why_a_scheduler_does_not_start_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COUNTERS_ENV, str(tmp_path))
    assert start_progress.failure() == ""

    def start(scheduler: object, *_: object) -> None:
        raise MemoryError("CUDA out of memory")

    with pytest.raises(MemoryError):
        plugin._start(start, object(), 1, 2)
    assert start_progress.failure() == "MemoryError: CUDA out of memory"
