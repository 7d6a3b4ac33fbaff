# Everything one does with serbench. The environment is made on first use, and again when pyproject.toml changes.
#   VENV=DIR       the environment: the active one, else .venv
#   PYTHON=PROGRAM makes .venv; if it has torch, .venv uses that one
#   ARGS=…         goes to pytest

PYTHON ?= python3
VENV ?= $(or $(VIRTUAL_ENV),.venv)
BIN := $(VENV)/bin
READY := $(VENV)/.serbench-ready

# Idle OpenMP threads must sleep: spinning ones take the cores from the engine's other processes.
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help run test matrix check fix bench clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(READY) ## the main job: SmolLM2 answers a few prompts, then its codecs are compared
	$(BIN)/serbench run --model smollm2-135m --chat --repeats 1 --warmup 0 --output-len 48 \
		--prompt "What is the capital of France?" \
		--prompt "Name three primary colours." \
		--prompt "Write one sentence about the sea."
	$(BIN)/serbench compare --model smollm2-135m --codec pickle,msgspec,delta,cached,columnar \
		--num-prompts 8 --input-len 64 --output-len 16

test: $(READY) ## the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not matrix" $(ARGS)

matrix: $(READY) ## every combination of codec, transport and executor
	$(BIN)/python -m pytest -n 2 -m matrix $(ARGS)

check: $(READY) ## lint, format and types
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

fix: $(READY) ## what lint and format can put right themselves
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format
	$(BIN)/python scripts/tree.py

bench: $(READY) ## the benchmark scripts, one after the other
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean: ## remove caches and builds; the environment and the results stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -exec rm -rf {} +

$(READY): pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" scripts/setup.sh "$(VENV)"
	@touch $@
