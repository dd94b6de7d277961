# make setup   .venv with everything that development needs
# make test    lint, types, layers, then all tests in both lanes
# make lint    ruff, mypy, import-linter
# make demo    a small shop: messages, groups, a crash, Spark pipelines; its data stays in roquet-demo
# make run     a name server and a broker that stay until Ctrl-C
# make bench   the benchmarks of the store, of the broker, of its services, of the client and of Spark
# make clean   remove what the other targets made, except .venv itself

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?= -n auto --dist loadgroup

# The suites of what has a lane run a second time with the fast lane switched off.
PURE_UNITS := broker client filter format model namesrv remoting runtime store
PURE_SUITES := $(PURE_UNITS:%=tests/unit/%) tests/golden tests/property tests/crash

.DELETE_ON_ERROR:
.PHONY: setup test lint demo run bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py scripts/setup.sh $(wildcard src/roquet/_*.pyx src/roquet/_*.pxd src/roquet/_*.h)
	PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests scripts examples $(wildcard benchmarks fuzz)
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	@if $(BIN)/python -c 'import roquet._wire' 2>/dev/null; then \
	    echo 'ROQUET_PURE=1 $(BIN)/python -m pytest $(PYTEST_ARGS) $(PURE_SUITES)'; \
	    ROQUET_PURE=1 $(BIN)/python -m pytest $(PYTEST_ARGS) $(PURE_SUITES); \
	else \
	    echo 'The fast lane is not built, so the tests above ran in the pure lane.'; \
	fi

demo: setup
	$(BIN)/python -m scripts.demo

run: setup
	$(BIN)/roquet dev

bench: setup
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.broker
	$(BIN)/python -m benchmarks.services
	$(BIN)/python -m benchmarks.client
	$(BIN)/python -m benchmarks.spark

clean:
	rm -rf build dist src/*.egg-info src/roquet/_*.c src/roquet/*.so $(STAMP)
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests $(wildcard benchmarks fuzz) -name __pycache__ -type d -prune -exec rm -rf {} +
