# Everything works on a machine with only Python (3.11 or newer) and pip; each target makes .venv
# with what it needs. `make test` uses all engines it finds or can install.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More arguments for pytest or the command, as in: make test ARGS="-k sqlite"
ARGS ?=
# Each of so many processes has engines of its own.
JOBS ?= auto --maxprocesses 4
# The tests make thousands of small databases. Where memory has room they lie there, and nothing
# waits for a disk that no test looks at; TMPDIR=/var/tmp make test has them on a disk.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 {print "/dev/shm"}')
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# Tests start processes by the hundred: where nothing compiled may be kept, which container images
# like to say, each of them would compile SQLAlchemy again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-adapters matrix soak breakages lint docs bench build plan engines adapters lowest clean

help:
	@echo "make demo           the main job on a real conversation"
	@echo "make test           the tests, on every engine there is"
	@echo "make test-adapters  the adapters with their frameworks' packages"
	@echo "make matrix         every test on every engine and with the lowest versions (slow)"
	@echo "make soak           the tests with large counts (slow)"
	@echo "make breakages      deliberate breakages, each of which some test must notice"
	@echo "make lint           ruff, mypy, pyright"
	@echo "make docs           the pages and the API reference, into site/"
	@echo "make bench          the benchmarks"
	@echo "make build          the wheel, into dist/"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras: installed once, and again when pyproject.toml changes.
$(VENV)/.has-%: pyproject.toml | $(BIN)/python
	@$(BIN)/python tests/install_packages.py '$*'
	@touch $@

demo: $(VENV)/.has-cli
	$(BIN)/agent-memory demo $(ARGS)

# What `make test` will do, before it does anything.
plan:
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) tests/install_engines.py --plan

engines: $(VENV)/.has-test
	@$(BIN)/python tests/install_engines.py

# Once; then only when what the adapters' tests need changes.
adapters: $(BIN)/python
	$(BIN)/python tests/environments.py

# The same, with the lowest versions that pyproject.toml allows.
lowest: $(BIN)/python
	$(BIN)/python tests/environments.py lowest

test: export TMPDIR := $(or $(TMPDIR),$(MEMORY),/tmp)
test: plan engines
	$(PYTEST) $(ARGS)

test-adapters: engines adapters
	$(PYTEST) -m adapters tests/test_adapters.py $(ARGS)

matrix: engines lowest
	$(PYTEST) --matrix $(ARGS)

soak: engines
	$(BIN)/python -m pytest --matrix -m soak --timeout 3600 --soak-report=docs/benchmarks.md $(ARGS)

# ARGS="view" for those of an area, or with a word in their sentence
breakages: engines
	$(BIN)/python tests/breakages.py $(ARGS)

lint: $(VENV)/.has-lint $(VENV)/.has-bench
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed_usage.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python tests/typed_usage.py
	rm -rf build/pages && $(BIN)/python tests/pages.py build/pages
	$(BIN)/mypy --strict --scripts-are-modules build/pages/*.py
	$(BIN)/pyright --pythonpath $(BIN)/python build/pages

docs: $(VENV)/.has-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(VENV)/.has-bench
	$(BIN)/python -m benchmarks $(ARGS)

build: $(VENV)/.has-lint
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) .venvs dist build site .mypy_cache .pytest_cache .ruff_cache .hypothesis
