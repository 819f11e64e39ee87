# The explicit-rate proxy for hosts without an agent.
SETUP += proxy
LINT += lint-proxy
UNIT += unit-proxy
LONG += share-proxy

PROXY := $(MAKE) -C dataplane/proxy BUILD=$(BUILD)

##@ Explicit-rate proxy
.PHONY: proxy lint-proxy unit-proxy share-proxy
proxy: packages
	+@$(PROXY) all

lint-proxy: packages
	+@$(PROXY) lint

unit-proxy: packages
	+@$(PROXY) unit

share-proxy: setup ## what a host behind the proxy gets of what an agent's own host gets (4 minutes); results in var/proxy
	@$(VENV)/bin/chart lab run proxy --out $(VAR)/proxy
