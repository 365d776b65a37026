# All commands make .venv and install what they need; nothing else is asked of the machine than Python 3.11+ and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build of torch: the tests need no GPU.
TORCH ?= torch==2.13.0
JOBS ?= 2

.PHONY: help heuristics test lint format docs clean

help:
	@echo "make heuristics   compile tuning_data/ into generated/ (no torch, no GPU)"
	@echo "make test         formatter, linter, type checker, treegen check, tests (no GPU)"
	@echo "make format       format the code"
	@echo "make docs         build the site of docs/ into build/docs"

heuristics: $(VENV)/treegen.stamp
	@$(BIN)/treegen build

test: lint
	@$(BIN)/treegen check --strict --jobs $(JOBS)
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

lint: $(VENV)/dev.stamp
	@$(BIN)/ruff format --quiet --check . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/codespell
	@$(BIN)/mypy

format: $(VENV)/dev.stamp
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/docs.stamp
	@COLUMNS=88 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs build/docs
	@echo "build/docs/index.html"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/treegen.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[treegen]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet '$(TORCH)' --editable '.[dev]'
	@touch $@ $(VENV)/treegen.stamp

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet '$(TORCH)' --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
