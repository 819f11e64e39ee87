# Elastic tunnels: chart-tunnel and its event API; the Python part is linted and tested by mk/python.mk.
SETUP += tunnel
LINT += lint-tunnel
UNIT += unit-tunnel
LONG += fuzz-tunnel

TUNNEL := $(MAKE) -C dataplane/tunnel BUILD=$(BUILD)

##@ Elastic tunnels
.PHONY: tunnel lint-tunnel unit-tunnel fuzz-tunnel
tunnel: packages
	@$(TUNNEL) all

lint-tunnel: packages
	@$(TUNNEL) lint

unit-tunnel: packages
	@$(TUNNEL) unit fuzz-corpus

fuzz-tunnel: packages ## fuzz the frame parser of the tunnel (FUZZ_SECONDS, 60)
	@$(TUNNEL) fuzz
