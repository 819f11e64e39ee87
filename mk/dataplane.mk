# BPF programs and chart-agent.
SETUP += dataplane

##@ Data plane
.PHONY: dataplane
dataplane: packages proto
	@$(MAKE) -C dataplane BUILD=$(BUILD) all
