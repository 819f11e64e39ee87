# Control of elastic tunnels: what takes long.
LONG += tunnel-range

.PHONY: tunnel-range
tunnel-range: setup ## PI by design over forty paths from 5 to 100 Mb/s in a model of TCP (20 minutes)
	@$(PYTEST) -m slow services/tests/tunnels
