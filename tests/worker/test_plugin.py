"""What the hooks do around SGLang's own functions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.environ import envs

from workers.sglang_patch import draft_context, scheduler_hooks, start_progress
from workers.sglang_patch.contract import proof
from workers.sglang_patch.environment import COUNTERS_ENV


@pytest.mark.parametrize("draft", [True, False])
def test_a_draft_may_have_less_context_than_its_target_and_a_target_no_more_than_its_own(draft: bool) -> None:
    allowed = []

    def derive(config: Any, context_length: int) -> None:
        allowed.append((envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get(), context_length))

    draft_context.derive_context_length(derive, SimpleNamespace(is_draft_model=draft), 4096)
    assert allowed == [(draft, 4096)]
    assert not envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(COUNTERS_ENV, str(tmp_path))
    return tmp_path


def test_why_a_scheduler_does_not_start_is_noted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(proof, "require_hooks", lambda device: None)
    assert start_progress.failure() == ""

    def start(scheduler: object, *_: object) -> None:
        raise MemoryError("CUDA out of memory")

    with pytest.raises(MemoryError):
        scheduler_hooks.start(start, object(), 1, 2)
    assert start_progress.failure() == "MemoryError: CUDA out of memory"


def test_a_scheduler_without_its_hooks_loads_no_model(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuse(device: str) -> None:
        raise RuntimeError("the patch of SGLang is not whole: a.b.c")

    monkeypatch.setattr(proof, "require_hooks", refuse)
    with pytest.raises(RuntimeError, match="not whole"):
        scheduler_hooks.start(lambda *_: pytest.fail("it started"), object())
    assert "a.b.c" in start_progress.failure()
