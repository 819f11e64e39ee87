# Elastic tunnels: chart-tunnel and its event API; the Python part is linted and tested by mk/python.mk.
SETUP += tunnel
LINT += lint-tunnel
UNIT += unit-tunnel
LONG += fuzz-tunnel

TUNNEL := $(MAKE) -C dataplane/tunnel BUILD=$(BUILD)

##@ Elastic tunnels
.PHONY: tunnel lint-tunnel unit-tunnel fuzz-tunnel
tunnel: packages proto
	@$(TUNNEL) all

lint-tunnel: packages proto
	@$(TUNNEL) lint

unit-tunnel: packages proto
	@$(TUNNEL) unit fuzz-corpus

fuzz-tunnel: packages proto ## fuzz what the tunnel reads from outside (FUZZ_SECONDS, 60)
	@$(TUNNEL) fuzz
