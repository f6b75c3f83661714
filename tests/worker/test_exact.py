"""The answer never depends on the depth, nor on what else an engine does: requests of every kind, alone and together.

SPECFLEET_EXACT_EXAMPLES says of how many examples, SPECFLEET_EXACT_SEED of which; `make exact` runs many.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from tests.worker.answers import Answer, ask, ask_together
from tests.worker.any_request import any_request, samples
from tests.worker.bench import Bench, bench

EXAMPLES = int(os.environ.get("SPECFLEET_EXACT_EXAMPLES", "12"))
SEED = int(os.environ.get("SPECFLEET_EXACT_SEED", "0"))
FLIPPING = (0, 3, 1, 0, 2, 3)


@pytest.fixture(scope="module")
def b() -> Iterator[Bench]:
    with bench() as running:
        yield running


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """Of what was compared; printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{dict(counted)}")


def completion(**fields: Any) -> tuple[str, dict[str, Any], bool]:
    return "completions", {"prompt": "def main(", "max_tokens": 40, "temperature": 0, **fields}, False


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)
@seed(SEED)
@given(requests=st.lists(any_request(), min_size=1, max_size=5), shallow=st.sampled_from([1, 2]), forgotten=st.booleans())
@example(requests=[completion(frequency_penalty=1.0)], shallow=1, forgotten=True)
@example(requests=[completion(presence_penalty=2.0), completion(repetition_penalty=1.5)], shallow=2, forgotten=True)
@example(requests=[completion(min_tokens=30, stop_token_ids=list(range(60)))], shallow=1, forgotten=False)
@example(requests=[completion(stop=["\n", " ", "e"]), completion(stop=["e", " "], ignore_eos=True)], shallow=1, forgotten=False)
def test_an_answer_is_the_same_at_any_depth(
    b: Bench, counts: Counter[str], requests: list[tuple[str, dict[str, Any], bool]], shallow: int, forgotten: bool
) -> None:
    async def answers() -> dict[str, list[Answer]]:
        await b.depth(0)
        given = {"alone, depth 0, plain": [await ask(b, route, body) for route, body, _ in requests]}
        for name, depths in {
            "together, depth 0": (0,),
            f"together, depth {shallow}": (shallow,),
            "together, depth 3": (3,),
            "together, flipping": FLIPPING,
        }.items():
            if forgotten:
                await b.face.flush_prefix_cache()
            given[name] = await ask_together(b, requests, depths)
        return given

    given = b.run(answers())
    expected = given.pop("alone, depth 0, plain")
    counts["requests"] += len(requests)
    for name, answered in given.items():
        for (route, body, stream), wanted, answer in zip(requests, expected, answered, strict=True):
            counts["answers"] += 1
            assert len(answer.ids) <= 1, f"{name}: the choices of one answer have ids {answer.ids}"
            if samples(body):
                continue
            counts["answers compared"] += 1
            difference = wanted.difference(answer)
            assert difference is None, f"{name}{' streamed' if stream else ''}: POST /v1/{route} {body}\n{difference}"
