"""The command line of `cluster.evaluate`, and quick scenarios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.evaluate import main
from cluster.simulation.evaluation import evaluate
from cluster.simulation.scenario import Scenario

SCENARIOS = Path(__file__).parents[1] / "data" / "scenarios"


def run(*paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cluster.evaluate", *map(str, paths)], capture_output=True, text=True)


def test_one_json_line_for_each_scenario() -> None:
    done = run(SCENARIOS / "drafting-never-pays.json", SCENARIOS / "no-prior-batch-128.json")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first.keys() == {"name", "share", "worst_phase", "phases", "switches_per_1000_steps", "probe_share"}
    assert (first["name"], len(first["phases"])) == ("drafting-never-pays", 1)
    assert (second["name"], len(second["phases"])) == ("no-prior-batch-128", 2)
    assert min(first["share"], second["share"]) > 0.95


def test_the_same_scenario_gives_the_same_result() -> None:
    scenario = Scenario.load(SCENARIOS / "short-phases.json")
    assert evaluate(scenario) == evaluate(scenario)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"engines": 0}, "engines"),
        ({"surprise": 1}, "surprise"),
        ({"step_ms": {"0": {"1": -4}}}, "step_ms"),
        ({"step_ms": {}}, "step_ms"),
        ({"phases": []}, "phases"),
        ({"phases": [{"steps": 1, "batch": 1, "acceptance": [1.5]}]}, "phases.0.acceptance"),
        ({"phases": [{"steps": 1, "batch": 1}]}, "acceptance"),
        ({"phases": [{"steps": 1, "batch": 1, "acceptance_by_engine": [[0.5], [0.5]]}]}, "acceptance_by_engine"),
    ],
)
def test_a_bad_scenario_is_refused_by_file_and_field(
    change: dict[str, Any], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**json.loads((SCENARIOS / "short-phases.json").read_text()), **change}))
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert "bad.json" in error
    assert field in error


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no/such.json"]) == 2
    assert "no/such.json" in capsys.readouterr().err
