# BPF programs and chart-agent.
SETUP += dataplane
LINT += lint-dataplane
UNIT += unit-dataplane

##@ Data plane
.PHONY: dataplane lint-dataplane unit-dataplane verify-dataplane
dataplane: packages proto
	@$(MAKE) -C dataplane BUILD=$(BUILD) all

lint-dataplane: dataplane
	@$(MAKE) -C dataplane BUILD=$(BUILD) lint

unit-dataplane: dataplane
	@$(MAKE) -C dataplane BUILD=$(BUILD) unit

verify-dataplane: dataplane ## load every BPF program and print its verified instruction count
	@$(MAKE) -C dataplane BUILD=$(BUILD) verify
