# make setup   .venv with everything that development needs
# make test    lint, types, layers, then the tests that need minutes, not hours
# make check   make test, then everything else: Java, Go, clusters, long campaigns, no compiled code,
#              make wheel, make pythons and make checked
# make wheel   sdist and wheel in build/wheel, each installed and tried with the README's first minute
# make pythons the sdist on every other Python from 3.11 on that this machine has, with fast tests
# make checked the compiled code, built with its checks and the sanitizers on, against the reference path
# make lint    ruff, mypy, pyright (as basedpyright, which needs no Node of its own), import-linter
# make coverage the tests of make test once more, with a report of lines and branches in build/coverage
# make demo    a small shop: messages, groups, a crash, Spark pipelines; its data stays in roquet-demo
# make run     a name server and a broker that stay until Ctrl-C
# make bench   the benchmarks of the store, of the broker, of replication, of services and topics, of the client and of Spark;
#              BENCH_ARGS are options of the broker's (benchmarks/README.md), whose table and chart go to build/bench
# make clean   remove what the other targets made, except .venv itself

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?= -n auto --dist loadgroup --durations=20 --durations-min=1
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)

# `make test` leaves these markers to `make check`; pyproject.toml says what they mean.
LONG := slow or cluster or interop

# What has a compiled twin runs a second time with the compiled code switched off, and so does what
# the pages and examples show.
PURE_UNITS := broker client remoting spark/log store
PURE_SUITES := $(PURE_UNITS:%=tests/unit/%) tests/integration/broker tests/integration/client \
    tests/golden tests/property tests/crash tests/docs

# What compares compiled code with its twin, or with bytes that others wrote, and what fuzzes it.
CHECKED_SUITES := $(sort $(wildcard tests/property/*_equal.py)) tests/property/test_fuzz_targets.py \
    $(patsubst %,tests/golden/test_%_golden.py,broker_send broker_pull client store spark_log) \
    tests/golden/test_wire_frames.py tests/unit/broker/hot tests/integration/broker/hot \
    tests/unit/spark/log tests/unit/store/test_append.py

# What runs on the other Pythons of this machine: fast, and without Spark.
OTHER_PYTHONS_SUITES := $(patsubst %,tests/unit/%,format model remoting store client) tests/integration/client

# `make check` draws a seed for its random tests and prints it; `make check SEED=7` repeats a run.
ifndef SEED
SEED := $(shell date +%s)
endif

# What the compiled modules are built from.
TYPES := $(shell find src/roquet -name '*.pxd')
COMPILED := $(shell find src/roquet -name '*.pyx' -o -name '*.h') $(TYPES) $(wildcard $(TYPES:.pxd=.py))
IS_BUILT := [ -n "$$(find src/roquet -name '*.so')" ]

.DELETE_ON_ERROR:
.PHONY: setup test check checked wheel pythons coverage lint demo run bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py scripts/setup.sh $(COMPILED)
	PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/setup.sh
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests scripts examples $(wildcard benchmarks fuzz)
	$(BIN)/python -m basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

test: lint
	$(PYTEST) -m 'not ($(LONG))'

# Compiled modules have no lines to count: `ROQUET_PURE=1 make coverage` measures their twins in Python.
coverage: setup
	rm -rf build/coverage
	mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest $(PYTEST_ARGS) -m 'not ($(LONG))' $(COVERAGE_TESTS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m coverage xml --quiet
	$(BIN)/python -m coverage report

# Real peers and long campaigns have their files on a disk, not in memory.
check: test
	TMPDIR=$${TMPDIR:-/tmp} $(PYTEST) -m '$(LONG)'
	ROQUET_TEST_SEED=$(SEED) $(PYTEST) -m 'hypothesis and not ($(LONG))'
	@if $(IS_BUILT); then \
	    echo "ROQUET_PURE=1 $(PYTEST) $(PURE_SUITES)"; \
	    ROQUET_PURE=1 $(PYTEST) $(PURE_SUITES); \
	else \
	    echo 'The compiled code is not built, so the tests above ran without it.'; \
	fi
	$(MAKE) checked
	$(MAKE) wheel pythons

wheel: setup
	@if $(IS_BUILT); then \
	    $(BIN)/python scripts/wheel.py; \
	else \
	    echo 'The compiled code is not built, so there is no wheel to try.'; \
	fi

pythons: wheel
	@if $(IS_BUILT); then \
	    $(BIN)/python scripts/pythons.py build/wheel/*.tar.gz $(PYTEST_ARGS) $(OTHER_PYTHONS_SUITES); \
	else \
	    echo 'The compiled code is not built, so other Pythons are not tried.'; \
	fi

checked: setup
	@if $(IS_BUILT); then \
	    PYTHON="$(BIN)/python" scripts/checked.sh $(PYTEST_ARGS) -m 'not ($(LONG))' $(CHECKED_SUITES); \
	else \
	    echo 'The compiled code is not built, so there is nothing to check.'; \
	fi

demo: setup
	$(BIN)/python -m scripts.demo

run: setup
	$(BIN)/roquet dev

bench: setup
	$(BIN)/python -m benchmarks.store
	$(BIN)/python -m benchmarks.broker --json build/bench/broker.json --chart build/bench/broker.svg $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.ha
	$(BIN)/python -m benchmarks.services
	$(BIN)/python -m benchmarks.topics
	$(BIN)/python -m benchmarks.client
	$(BIN)/python -m benchmarks.spark

clean:
	rm -rf build dist src/*.egg-info $(STAMP)
	find src/roquet \( -name '*.c' -o -name '*.so' \) -delete
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests $(wildcard benchmarks fuzz) -name __pycache__ -type d -prune -exec rm -rf {} +
