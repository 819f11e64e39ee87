# TimescaleDB for contract tests: PostgreSQL with the extension, as WebAssembly (platform/timescale). Where it is not to be
# had the tests of storage run on PostgreSQL alone, and say so.
SETUP += timescale
TIMESCALE := $(BUILD)/timescale

.PHONY: timescale
timescale: $(TIMESCALE)/.stamp

$(TIMESCALE)/.stamp: platform/timescale/package.json platform/timescale/package-lock.json platform/timescale/server.mjs $(BUILD)/.packages
	@mkdir -p $(TIMESCALE)
	@cp platform/timescale/package.json platform/timescale/package-lock.json platform/timescale/server.mjs $(TIMESCALE)/
	@if cd $(TIMESCALE) && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error; then touch $@; \
	    else echo "timescale: not to be had here; the tests of storage run on PostgreSQL alone" >&2; fi
