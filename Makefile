# Two commands: `make demo` shows the product, `make test` passes the tests. Each sets up what it needs.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTERS ?= 3# on two cores: tests wait for children and servers for a part of their time
export INSTEP_CACHE ?= $(CURDIR)/.cache/instep
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of commands: each would compile our modules anew, for 0.4 s

.PHONY: help setup setup-test demo connector-demo test test-fast test-slow test-all lint docs bench examples clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 18

setup: $(STAMP) ## make .venv with the locked dependencies, check Java, fetch the pinned jars once

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh src/instep/spark/jars.py
	@scripts/setup.sh
	@touch $@

setup-test: $(STAMP)
	@scripts/setup_test.sh

demo: $(STAMP) ## two databases change under a running pipeline: plan, quarantine, backfill, undo, renames, verify
	@$(BIN)/instep init --demo --project demo --run

connector-demo: $(STAMP) ## five syncs of a connector whose records change shape: plan, decision and result of each
	@$(BIN)/instep connector demo --project connector-demo

test: setup-test ## all tests but the slow ones
	@scripts/run_tests.sh -m "not slow" -n $(TESTERS) --dist loadgroup

test-fast: setup-test ## the tests that need neither JVM nor server, with fewer random examples
	@scripts/run_tests.sh -m "not slow and not spark and not server" -n $(TESTERS) --dist loadgroup --hypothesis-profile=fast

test-slow: setup-test ## crash points, load, and what becomes of each change (docs/explanation/what-becomes-of-each-change.md)
	@scripts/run_tests.sh -m slow -n $(TESTERS) --dist loadgroup

test-all: setup-test ## every case of every test, also of those of which test and test-slow take a part
	@INSTEP_FULL=1 scripts/run_tests.sh -n $(TESTERS) --dist loadgroup

lint: $(STAMP) ## ruff, mypy --strict, import contracts, sizes
	@$(BIN)/ruff check src tests scripts bench examples
	@$(BIN)/ruff format --check src tests scripts bench examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/lint-imports --config .importlinter-served
	@$(BIN)/python scripts/size_check.py

docs: $(STAMP) ## the documentation as a site in site/: links checked, offline search, nothing loaded from other hosts
	@$(BIN)/properdocs build --quiet --config-file mkdocs.yml --site-dir site
	@$(BIN)/python scripts/site_check.py site
	@echo "site/index.html; with search: $(BIN)/python -m http.server --directory site"

bench: $(STAMP) ## side by side with dlt, ingestr and sling (pinned, in environments of their own)
	@$(BIN)/python bench/run.py $(BENCH)
	@$(BIN)/python bench/pages.py --write
	@$(BIN)/python bench/airbyte_line.py --write

examples: $(STAMP) ## the examples for Airflow and Dagster against the real ones, in environments of their own (1.5 GB)
	@$(BIN)/python examples/run.py $(EXAMPLES)

clean: ## remove what the targets made (not the jars)
	rm -rf $(VENV) demo connector-demo site .pytest_cache .mypy_cache .ruff_cache
