PYTHON ?= python3
CONFIG ?= configs/local.yaml
BIN := .venv/bin
# What to install for. A machine without an NVIDIA driver does without what only a GPU needs.
DEVICE ?= $(if $(wildcard /dev/nvidiactl),gpu,cpu)
INSTALLED := .venv/installed-for-$(DEVICE)

.PHONY: install lock serve test test-unit bench chaos exact fuzz soak lint

## Start the fleet of CONFIG (default: two engines on the CPU). Ctrl-C ends it.
serve: $(INSTALLED)
	configs/with-haproxy $(BIN)/python -m serve_app.console $(CONFIG)

## With the real SGLang engine on the CPU, at most two at once. Without chaos, bench, and tests/gpu, which needs two GPUs.
test: lint test-unit
	$(BIN)/pytest -n auto tests/scenarios
	$(BIN)/pytest -n 2 --dist loadfile tests/worker
	$(BIN)/pytest tests/engine

## Tests that need no engine.
test-unit: $(INSTALLED)
	$(BIN)/pytest -n auto -p no:schemathesis tests/unit

## Bounds on time, which a slow or busy machine may miss. Prints the figures.
bench: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.thousand_engines --bar-ms 100
	$(BIN)/pytest -s tests/bench

## Everything in a running fleet is killed or stopped, five times each; prints how every request ended.
chaos: $(INSTALLED)
	SPECFLEET_CHAOS_ROUNDS=5 $(BIN)/pytest -s tests/chaos

## Thousands of requests of every kind, at every depth, alone and together, and 20,000 sampled answers; prints the counts.
exact: $(INSTALLED)
	SPECFLEET_EXACT_EXAMPLES=700 $(BIN)/pytest -s tests/worker/test_exact.py
	SPECFLEET_EXACT_SAMPLES=10000 $(BIN)/pytest -s tests/worker/test_sampling.py

## 5,000 malformed and hostile bodies, and some 5,000 made from the application's own OpenAPI, right and wrong ones.
fuzz: $(INSTALLED)
	SPECFLEET_FUZZ_BODIES=5000 $(BIN)/pytest -s tests/engine/test_fuzz.py

## Twenty minutes of traffic, with memory watched.
soak: $(INSTALLED)
	SPECFLEET_SOAK_S=1200 $(BIN)/pytest -s tests/engine/test_soak.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

## The versions of requirements/constraints.txt, into .venv: 7 GB, or 10 GB with what a GPU needs.
install: $(INSTALLED)

$(INSTALLED): pyproject.toml requirements/constraints.txt requirements/gpu-only.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint requirements/constraints.txt uv
	$(BIN)/uv pip install --python $(BIN)/python --constraint requirements/constraints.txt \
		--build-constraints requirements/constraints.txt $(if $(filter cpu,$(DEVICE)),--excludes requirements/gpu-only.txt) --editable '.[dev]'
	touch $@

## Update requirements/constraints.txt to the newest versions that pyproject.toml allows.
lock: $(INSTALLED)
	$(BIN)/uv pip compile --upgrade --extra dev --python-version 3.11 --no-annotate --custom-compile-command 'make lock' \
		--output-file requirements/constraints.txt pyproject.toml
