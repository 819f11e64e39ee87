# CHART: every command of the project. `make help` lists them; the parts stand in mk/*.mk, which add to the lists below.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

ROOT := $(CURDIR)
VENV := $(ROOT)/.venv
PYTHON := $(VENV)/bin/python
BUILD := $(ROOT)/build
VAR ?= $(ROOT)/var
PARALLEL ?= $(shell nproc)

# What each stage consists of; filled by mk/*.mk in this order: packages, python, proto, C, platform, web.
SETUP :=
LINT :=
UNIT :=
CONTRACT :=
LAB_SMOKE :=
BROWSER :=
LONG :=

include mk/packages.mk mk/python.mk mk/proto.mk
include $(filter-out mk/packages.mk mk/python.mk mk/proto.mk,$(sort $(wildcard mk/*.mk)))

.DEFAULT_GOAL := help

##@ Start here
.PHONY: help
help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} /^[a-zA-Z_-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(SETUP) ## install and build everything; afterwards the CLI is .venv/bin/chart

##@ Tests
# Every stage is run, also after one that failed; tests/support/stages.py counts, says what was repeated and skipped, and
# writes the report (decision record 0029).
TEST_STAGES := lint unit contract lab-smoke browser
TEST_VAR := $(abspath $(VAR))/test
# Where the runners of tests leave what they counted; a stage has a folder of its own.
TEST_PARTS ?= $(TEST_VAR)/parts/apart
STAGES := PYTHONPATH=tests $(PYTHON) -m support.stages --out $(TEST_VAR)
# A target of `verify-all` that cannot run here adds a line to this file, what was left out and why.
export LEFT_OUT := $(TEST_VAR)/left-out

.PHONY: test lint unit contract lab-smoke browser bench-all verify-all verify-long record-repeated
test: setup ## lint, unit, contract, lab smoke and core browser tests; counts in var/test/report.json
	@$(STAGES) $(TEST_STAGES)

record-repeated: ## add the tests that the last run repeated to tests/repeated.yaml
	@$(STAGES) --record $$(date -u +%F)

lint: ## every linter of every language; a warning is an error
	@$(MAKE) -k -j$(PARALLEL) --output-sync=target $(LINT)

unit: $(UNIT) ## tests without broker, database or network

contract: $(CONTRACT) ## tests against a real Kafka and PostgreSQL on loopback

lab-smoke: $(LAB_SMOKE) ## short tests in the lab (root; namespaces and emulated links)

browser: $(BROWSER) ## core tests of the dashboard in Chromium

bench-all: setup ## judge everything that measures: met, missed, or not judged and why (RESUME=1: go on); var/bench/report.json
	@PYTHONPATH=tests $(PYTHON) -m support.bench --out $(VAR)/bench $(if $(RESUME),--resume) $(BENCH)

verify-all: ## what is long: full grids, soak, fuzz, visual tests, bench-all; says what it left out and why
	@failed=0; \
	$(MAKE) test || failed=1; \
	$(MAKE) -k verify-long || failed=1; \
	$(STAGES) --left-out; \
	exit $$failed

verify-long: $(LONG) bench-all
