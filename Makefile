PYTHON ?= python3
CONFIG ?= configs/local.yaml
BIN := .venv/bin

.PHONY: serve test test-unit chaos fuzz soak lint

## Start the fleet of CONFIG (default: two engines on the CPU). Ctrl-C ends it.
serve: .venv/installed
	configs/with-haproxy $(BIN)/serve run $(CONFIG)

## With the real SGLang engine on the CPU, two at once at most. Not in it: chaos, and tests/gpu, which want two GPUs.
test: lint test-unit
	$(BIN)/pytest -n auto tests/scenarios
	$(BIN)/pytest -n 2 --dist loadfile tests/worker
	$(BIN)/pytest tests/engine

## Tests that need no engine.
test-unit: .venv/installed
	$(BIN)/pytest -n auto -p no:schemathesis tests/unit

## Everything in a running fleet is killed or stopped, five times each; prints how every request ended.
chaos: .venv/installed
	SPECFLEET_CHAOS_ROUNDS=5 $(BIN)/pytest -s tests/chaos

## 5,000 malformed and hostile bodies, and some 5,000 made from the application's own OpenAPI, right and wrong ones.
fuzz: .venv/installed
	SPECFLEET_FUZZ_BODIES=5000 $(BIN)/pytest -s tests/engine/test_fuzz.py

## Twenty minutes of traffic, with memory watched.
soak: .venv/installed
	SPECFLEET_SOAK_S=1200 $(BIN)/pytest -s tests/engine/test_soak.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# SGLang brings torch and CUDA libraries: about 11 GB, a few minutes.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --progress-bar on --editable '.[dev]'
	touch $@
