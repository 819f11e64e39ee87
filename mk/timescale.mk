# TimescaleDB for contract tests: PostgreSQL with the extension, as WebAssembly (deploy/timescale). Where it is not to be
# had the tests of storage run on PostgreSQL alone, and say so.
SETUP += timescale
TIMESCALE := $(BUILD)/timescale

.PHONY: timescale
timescale: $(TIMESCALE)/.stamp

$(TIMESCALE)/.stamp: deploy/timescale/package.json deploy/timescale/package-lock.json deploy/timescale/server.mjs $(BUILD)/.packages
	@mkdir -p $(TIMESCALE)
	@cp deploy/timescale/package.json deploy/timescale/package-lock.json deploy/timescale/server.mjs $(TIMESCALE)/
	@if cd $(TIMESCALE) && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error; then touch $@; \
	    else echo "timescale: not to be had here; the tests of storage run on PostgreSQL alone" >&2; fi
