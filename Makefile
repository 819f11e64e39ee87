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
.PHONY: test lint unit contract lab-smoke browser verify-all
test: setup ## lint, unit, contract, lab smoke and core browser tests
	@$(MAKE) lint
	@$(MAKE) unit
	@$(MAKE) contract
	@$(MAKE) lab-smoke
	@$(MAKE) browser

lint: $(LINT) ## every linter of every language; a warning is an error

unit: $(UNIT) ## tests without broker, database or network

contract: $(CONTRACT) ## tests against a real Kafka and PostgreSQL on loopback

lab-smoke: $(LAB_SMOKE) ## short tests in the lab (root; namespaces and emulated links)

browser: $(BROWSER) ## core tests of the dashboard in Chromium

verify-all: test $(LONG) ## what is long: full grids, soak, fuzz, visual tests
