# Elastic tunnels: chart-tunnel and its event API; the Python part is linted and tested by mk/python.mk.
SETUP += tunnel
LINT += lint-tunnel
UNIT += unit-tunnel
LONG += fuzz-tunnel soak-tunnel throughput-tunnel tunnel-range

TUNNEL := $(MAKE) -C dataplane/tunnel BUILD=$(BUILD)

##@ Elastic tunnels
.PHONY: tunnel lint-tunnel unit-tunnel fuzz-tunnel soak-tunnel throughput-tunnel tunnel-range
tunnel: packages proto
	+@$(TUNNEL) all faulty

lint-tunnel: packages proto
	+@$(TUNNEL) lint

unit-tunnel: packages proto
	+@$(TUNNEL) unit fuzz-corpus

fuzz-tunnel: packages proto ## fuzz what the tunnel reads from outside (FUZZ_SECONDS, 60)
	+@$(TUNNEL) fuzz

soak-tunnel: setup ## an hour of a tunnel whose connections change every second
	@$(PYTEST) -m "lab and slow" tests/tunnel_program

throughput-tunnel: setup ## what the tunnel carries and costs (4 minutes); results in var/tunnel-throughput, var/tunnel-bulk
	@$(VENV)/bin/chart lab run tunnel-throughput --out $(VAR)/tunnel-throughput
	@$(VENV)/bin/chart lab run tunnel-bulk --out $(VAR)/tunnel-bulk

tunnel-range: setup ## the long tests of models: PI by design over forty paths from 5 to 100 Mb/s, a refresh of inference (20 minutes)
	@$(PYTEST) -m slow lab/tests/models
