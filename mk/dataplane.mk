# BPF programs and chart-agent.
SETUP += dataplane
LINT += lint-dataplane
UNIT += unit-dataplane
LONG += fuzz-dataplane signal-experiments throughput-grid-in-band

DATAPLANE := $(MAKE) -C dataplane BUILD=$(BUILD)

##@ Data plane
.PHONY: dataplane lint-dataplane unit-dataplane fuzz-build fuzz-dataplane fuzz verify verify-dataplane
.PHONY: signal-experiments throughput-grid-in-band
dataplane: packages proto
	+@$(DATAPLANE) all

lint-dataplane: dataplane
	+@$(DATAPLANE) lint

unit-dataplane: dataplane
	+@$(DATAPLANE) unit fuzz-corpus

fuzz-build: dataplane # the fuzz targets of the agent are built, nothing is run
	+@$(DATAPLANE) fuzz-build

fuzz-dataplane: dataplane ## fuzz what the agent reads of the authority (FUZZ_SECONDS, 60)
	+@$(DATAPLANE) fuzz

# Names of before.
.PHONY: fuzz-authority fuzz-authority-corpus
fuzz-authority: fuzz-dataplane

fuzz-authority-corpus: dataplane
	@$(MAKE) -C dataplane BUILD=$(BUILD) fuzz-corpus

fuzz: ## fuzz every parser of outside bytes, one after the other (FUZZ_SECONDS each, 600)
	@for part in qos sensors tunnel dataplane; do \
	    FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(MAKE) fuzz-$$part || exit 1; \
	done

verify: verify-dataplane

verify-dataplane: dataplane ## load every BPF program and print its instruction count and run-once times (also: make verify)
	+@$(DATAPLANE) verify

signal-experiments: setup ## in-band signals: cost, abuse, timing, cells (8 minutes); results in var/signal-*
	@for name in signal-cost signal-abuse signal-timing signal-cells; do \
	    $(VENV)/bin/chart lab run $$name --out $(VAR)/$$name || exit 1; \
	done

throughput-grid-in-band: setup ## the grid of loss and delay with rates agreed in band (55 minutes); var/throughput-grid-in-band
	@$(VENV)/bin/chart lab run throughput-grid --in-band --out $(VAR)/throughput-grid-in-band
