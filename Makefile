# Everything runs in a private environment, .venv, filled by `make setup`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Most tests wait for servers and sessions, so more of them than cores run at a time. A test that fails
# on the crowded machine gets a second run; the summary shows it as rerun, and it is a defect to mend.
WORKERS ?= 4
STAMP := $(VENV)/.stamp

.PHONY: help setup test check fmt demo bench bench-locks clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(STAMP) ## create .venv with all that tests and demo need; nothing to do when nothing changed

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[demo]' --group dev
	@$(BIN)/python -m zkcoord.local.java || $(BIN)/pip install --quiet --disable-pip-version-check -e '.[java]'
	@touch $@

test: setup ## run all tests; they start the servers that they need
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --reruns 1 --durations=15

check: setup ## formatting, lint, types, dependency rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## start the local stack and run the main job
	$(BIN)/zkcoord demo

chaos-locks: setup ## every fault against our lock, kazoo's and mutants, on real servers; models at length; 20 minutes
	$(BIN)/python -m tests.chaos
	ZKCOORD_LOCK_MODEL_RUNS=20000 $(BIN)/python -m pytest tests/model -q -n 3 --dist loadfile

bench: setup ## measure speed against rivals; writes build/bench.json
	$(BIN)/python -m tests.bench

bench-locks: setup ## measure locks against kazoo, Curator, etcd and bare requests; 5 minutes
	$(BIN)/python -m tests.bench.locks

clean: ## remove what the other targets made
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
