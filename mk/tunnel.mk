# Elastic tunnels: the event API and chart-tunnel; the Python part is linted and tested by mk/python.mk.
LINT += lint-tunnel
UNIT += unit-tunnel

TUNNEL := $(MAKE) -C dataplane/tunnel BUILD=$(BUILD)

##@ Elastic tunnels
.PHONY: lint-tunnel unit-tunnel
lint-tunnel: packages
	@$(TUNNEL) lint

unit-tunnel: packages
	@$(TUNNEL) unit fuzz-corpus
