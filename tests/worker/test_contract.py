"""The contract with SGLang's insides: its rows fit the installed source, and what they put there is proven in force."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workers.sglang_patch
from workers.sglang_patch import cpu
from workers.sglang_patch.contract import proof, source
from workers.sglang_patch.contract.row import HOOK, OVERRIDE, RELIANCE, REPLACEMENT, Row
from workers.sglang_patch.contract.table import ROWS, rows_of
from workers.sglang_patch.environment import COUNTERS_ENV

PACKAGE = Path(workers.sglang_patch.__file__).parent
ROOT = PACKAGE.parents[1]
WITH_SOURCE = [row for row in ROWS if row.expected]
PUT_THERE = [row for row in ROWS if row.kind is not RELIANCE]
BREAKS = {
    HOOK: ["hook_target_renamed", "hook_left_unregistered"],
    REPLACEMENT: ["replacement_taken_back"],
    OVERRIDE: ["method_replaced", "sglang_worker_in_use"],
}


def by_path(row: Row) -> str:
    return row.path


# -- the installed source --


@pytest.mark.parametrize("row", WITH_SOURCE, ids=by_path)
def test_the_installed_sglang_is_what_the_row_expects(row: Row) -> None:
    assert source.differences([row]) == []


@pytest.mark.parametrize("row", WITH_SOURCE, ids=by_path)
def test_a_row_that_expects_something_else_is_named(row: Row) -> None:
    other = "sha256:0123456789abcdef" if row.expected.startswith(source.HASH) else "(self, something_else)"
    (found,) = source.differences([dataclasses.replace(row, expected=other)])
    assert found.startswith(f"{row.path}: expected {other}, found {row.expected}")


@pytest.mark.parametrize(
    "path",
    [
        "sglang.srt.no_such_module.f",
        "sglang.srt.managers.scheduler.NoSuchClass.f",
        "sglang.srt.managers.scheduler.Scheduler.no_such_method",
    ],
)
def test_a_symbol_that_is_gone_is_named(path: str) -> None:
    (found,) = source.differences([dataclasses.replace(ROWS[0], path=path)])
    assert found.startswith(f"{path}: ")


def test_a_broken_row_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(ROWS[0], expected="(self, another_argument)")
    monkeypatch.setattr(source, "ROWS", (broken, *ROWS[1:]))
    with pytest.raises(RuntimeError, match=r"does not fit.*Scheduler.__init__: expected \(self, another_argument\), found"):
        source.require_wheel("cpu")


def test_every_symbol_that_is_imported_from_sglang_has_a_row() -> None:
    imported = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "sglang":
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert imported
    paths = [*(row.path.partition("[")[0] for row in ROWS), *(row.ours for row in ROWS)]
    assert [name for name in sorted(imported) if not any(f"{path}.".startswith(f"{name}.") for path in paths)] == []


# -- the proof --


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the proof says of SGLang with each row broken in turn."""
    environment = {**os.environ, **cpu.environment(), COUNTERS_ENV: str(tmp_path_factory.mktemp("counters"))}
    command = [sys.executable, "-m", "tests.worker.broken_targets"]
    run = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    answers: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_whole_patch_is_proven(said: dict[str, Any], device: str) -> None:
    assert said[f"whole {device}"] == []


@pytest.mark.parametrize(("broken", "row"), [(broken, row) for row in PUT_THERE for broken in BREAKS[row.kind]])
def test_a_broken_row_is_missed(said: dict[str, Any], broken: str, row: Row) -> None:
    missing = [found.partition(" (")[0] for found in said[f"{broken} {row.path}"]]
    assert row.path in missing
    if broken != "sglang_worker_in_use":
        others = [path for path in missing if path != row.path]
        # A class that is renamed takes its other hooks along.
        assert all(path.rpartition(".")[0] == row.path.rpartition(".")[0] for path in others)


def test_every_overridden_method_has_a_row(said: dict[str, Any]) -> None:
    assert sorted(said["overridden"]) == sorted(row.ours for row in ROWS if row.kind is OVERRIDE)


# -- the actor's end --


def leave_proof(folder: Path, rank: int, *, without: str = "") -> None:
    paths = [row.path for row in rows_of("cpu", "scheduler", HOOK, REPLACEMENT, OVERRIDE)]
    (folder / f"proof{rank}").write_text("\n".join(path for path in paths if path != without))


def test_all_ranks_have_to_leave_a_proof(tmp_path: Path) -> None:
    leave_proof(tmp_path, 0)
    (missing,) = proof.missing_proofs(tmp_path, 2, "cpu")
    assert missing.startswith("tensor-parallel ranks [1] left no proof")
    leave_proof(tmp_path, 1)
    assert proof.missing_proofs(tmp_path, 2, "cpu") == []


def test_a_proof_names_all_that_the_actor_expects(tmp_path: Path) -> None:
    lacking = next(row.path for row in ROWS if row.kind is HOOK)
    leave_proof(tmp_path, 0, without=lacking)
    assert proof.missing_proofs(tmp_path, 1, "cpu") == [f"rank 0 did not prove {lacking}"]


BROKEN = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar.apply_vocab_mask"
OTHER_PLUGIN = """
def register():
    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar
    XGrammarGrammar.mask = XGrammarGrammar.apply_vocab_mask
    for holder in XGrammarGrammar.__mro__[:-1]:
        if "apply_vocab_mask" in vars(holder):
            del holder.apply_vocab_mask
"""
START = """
import os, signal, threading
from cluster.messages.directive import DepthTable
from cluster.messages.spec import EngineSpec
from workers.sglang_patch.engine import SGLangEngine

def start():
    spec = EngineSpec(
        name="tiny-0", model="tiny", served_model_name="tiny", device="cpu", fallback=DepthTable(enabled=False),
        candidate_depths=(0, 1),
    )
    try:
        SGLangEngine().start(spec, known=None)
        print("it started", flush=True)
    except RuntimeError as error:
        print("refused:", error, flush=True)

if __name__ == "__main__":
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    os._exit(0)
"""


def test_an_engine_with_a_broken_hook_does_not_start(tmp_path: Path) -> None:
    """A plugin of somebody else's renames a method that we hook. SGLang logs that, and would serve without the hook."""
    (tmp_path / "other_plugin.py").write_text(OTHER_PLUGIN)
    (tmp_path / "start.py").write_text(START)
    metadata = tmp_path / "other_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sglang.srt.plugins]\nother = other_plugin:register\n")
    environment = {**os.environ, **cpu.environment()}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    running = subprocess.Popen(
        [sys.executable, str(tmp_path / "start.py")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=300)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
    refusal = next(line for line in output.splitlines() if line.startswith(("refused:", "it started")))
    assert refusal.startswith("refused: RuntimeError: the patch of SGLang is not whole:")
    assert BROKEN in refusal
