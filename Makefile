# serve: set up and start the gateway.
# test: a sample of the tests, for every day. whole-test: every test. slow-test: those of them that are marked slow.
# check: what a change must pass, which is lint (beside the preparation of the tests) and whole-test with a third of two suites. quick: the tests that open no connection.
# crash-test: kill gateways, ROUNDS times or for MINUTES. cluster-test: the same with three on one PostgreSQL.
# mutate-test: send REQUESTS that chance has changed.
# fix, accept, docs, lock: rewrite what can be.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Two more than there are cores: tests wait, too.
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 2))')
# With so many, what tests/limits measures is the other tests.
SLOW_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
# Tests of the tier `unit` wait for hardly anything, and each process imports them all first.
QUICK_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count() or 1))')

# Each process of the tests imports them all: what is compiled is kept, even where PYTHONDONTWRITEBYTECODE is set.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

ROUNDS ?= 60
CRASHES := $(if $(MINUTES),--minutes $(MINUTES),--rounds $(ROUNDS))
REQUESTS ?= 10000
SEED ?= 1
# Which of many cases `make test` runs: other ones every day. The run prints it.
SAMPLE ?= today

.PHONY: serve test whole-test slow-test quick crash-test cluster-test mutate-test check prepared lint fix accept docs lock

serve: .venv/serve.stamp
	@exec $(BIN)/babelgate serve $(if $(PORT),--port $(PORT))
test: .venv/dev.stamp
	@$(PYTEST) -m "not slow" -n $(PROCESSES) --dist loadfile --sample $(SAMPLE)
whole-test: .venv/dev.stamp
	@$(BIN)/python -m tests.interop.peers
	@$(PYTEST) -m "not slow" $(THIN) -n $(PROCESSES) --dist loadfile
	@$(MAKE) --no-print-directory slow-test THIN='$(THIN)'
slow-test: .venv/dev.stamp
	@$(BIN)/python -m tests.interop.peers
	@$(PYTEST) -m slow $(THIN) -n $(SLOW_PROCESSES) --dist loadfile
quick: .venv/dev.stamp
	@$(PYTEST) -q --quick -n $(QUICK_PROCESSES) --dist loadfile
crash-test: .venv/dev.stamp
	@$(BIN)/python -m tests.crash $(CRASHES) --seed $(SEED) $(if $(POSTGRES),--postgres)
cluster-test: .venv/dev.stamp
	@$(BIN)/python -m tests.crash --nodes 3 $(CRASHES) --seed $(SEED)
mutate-test: .venv/dev.stamp
	@$(BIN)/python -m tests.mutate --requests $(REQUESTS) --seed $(SEED)
check: .venv/dev.stamp
	@$(MAKE) --no-print-directory -j 2 lint prepared
	@$(MAKE) --no-print-directory whole-test THIN='--thin today'
# The other programs of the tests, and the test modules compiled: each process would compile them all.
prepared: .venv/dev.stamp
	@$(BIN)/python -m tests.interop.peers
	@$(PYTEST) --collect-only -qq >/dev/null
lint: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
fix: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
accept: .venv/dev.stamp
	@$(PYTEST) --accept
docs: .venv/dev.stamp
	@$(BIN)/python -m docs.generate
lock: .venv/dev.stamp
	@$(BIN)/python tests/lock.py $(LOCK)

.venv/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Babelgate needs Python 3.11 or newer, and '$(PYTHON)' is not: name one, as in 'make serve PYTHON=python3.12'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "'$(PYTHON)' cannot make virtual environments: install its venv module (Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@touch $@
.venv/serve.stamp: .venv/pip.stamp requirements.lock pyproject.toml
	@echo "Setting up .venv; this happens once and takes about half a minute." >&2
	@$(PIP) install --require-hashes -r requirements.lock && $(PIP) install --no-deps --no-build-isolation -e . && touch $@
.venv/dev.stamp: .venv/pip.stamp requirements-dev.lock requirements-uv.lock pyproject.toml
	@echo "Setting up .venv for the tests; this happens once." >&2
	@$(PIP) install --require-hashes -r requirements-uv.lock
	@$(BIN)/python tests/install.py $(BIN)/python --lock requirements-dev.lock
	@$(BIN)/python tests/install.py $(BIN)/python --no-deps --no-build-isolation -e .
	@touch .venv/serve.stamp $@
