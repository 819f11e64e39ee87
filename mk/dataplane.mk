# BPF programs and chart-agent.
SETUP += dataplane
LINT += lint-dataplane
UNIT += unit-dataplane
LONG += signal-experiments throughput-grid-in-band

##@ Data plane
.PHONY: dataplane lint-dataplane unit-dataplane verify verify-dataplane signal-experiments throughput-grid-in-band
dataplane: packages proto
	@$(MAKE) -C dataplane BUILD=$(BUILD) all

lint-dataplane: dataplane
	@$(MAKE) -C dataplane BUILD=$(BUILD) lint

unit-dataplane: dataplane
	@$(MAKE) -C dataplane BUILD=$(BUILD) unit

verify: verify-dataplane

verify-dataplane: dataplane ## load every BPF program and print its instruction count and run-once times (also: make verify)
	@$(MAKE) -C dataplane BUILD=$(BUILD) verify

signal-experiments: setup ## in-band signals: cost, abuse, timing, cells (8 minutes); results in var/signal-*
	@for name in signal-cost signal-abuse signal-timing signal-cells; do \
	    $(VENV)/bin/chart lab run $$name --out $(VAR)/$$name || exit 1; \
	done

throughput-grid-in-band: setup ## the grid of loss and delay with rates agreed in band (55 minutes); var/throughput-grid-in-band
	@$(VENV)/bin/chart lab run throughput-grid --in-band --out $(VAR)/throughput-grid-in-band
