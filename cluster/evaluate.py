"""`python -m cluster.evaluate SCENARIO.json...`: how near the measured policy comes to an oracle.

The files are scenarios (`cluster.simulation.scenario`). Prints one `cluster.simulation.evaluation.Result` a line, as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cluster.simulation.evaluation import evaluate
from cluster.simulation.scenario import Scenario


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate every file. Returns the exit code: 2 if one of them is not a scenario."""
    parser = argparse.ArgumentParser(
        "python -m cluster.evaluate", description="How near the measured policy comes to an oracle, one JSON object a line."
    )
    parser.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO.json")
    try:
        scenarios = [Scenario.load(path) for path in parser.parse_args(arguments).scenarios]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for scenario in scenarios:
        print(json.dumps(asdict(evaluate(scenario))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
