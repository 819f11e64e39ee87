# The dashboard: build, lint, unit tests, browser tests.
SETUP += web
LINT += lint-web
UNIT += unit-web
BROWSER += browser-web
LONG += web-test

WEB_SOURCES := $(shell find web/src web/public web/index.html web/vite.config.ts -type f)

##@ Dashboard
.PHONY: web web-client lint-web unit-web browser-web web-test web-test-pages web-test-platform web-test-recorded web-visual \
    web-pictures
web: web/dist/index.html

web/node_modules/.installed: web/package.json web/package-lock.json
	@echo "web: installing the locked packages"
	@cd web && npm ci --no-fund --no-audit --loglevel=error >/dev/null
	@touch $@

web/dist/index.html: web/node_modules/.installed $(WEB_SOURCES)
	@echo "web: building the dashboard"
	@cd web && npx vite build --logLevel error

web-client: python proto web/node_modules/.installed ## generate the typed client from the gateway's OpenAPI document
	@$(PYTHON) -m chart.gateway.openapi > web/openapi.json
	@cd web && npx openapi-typescript openapi.json -o src/api/schema.d.ts >/dev/null

# The committed client must be what the gateway's interface generates now.
lint-web: web/node_modules/.installed python proto
	@mkdir -p $(BUILD)/web && $(PYTHON) -m chart.gateway.openapi > $(BUILD)/web/openapi.json
	@diff -q $(BUILD)/web/openapi.json web/openapi.json >/dev/null || \
	    { echo "web/openapi.json differs from the gateway's interface: run \`make web-client\`" >&2; exit 1; }
	@cd web && npx openapi-typescript openapi.json -o $(BUILD)/web/schema.d.ts >/dev/null
	@diff -q $(BUILD)/web/schema.d.ts web/src/api/schema.d.ts >/dev/null || \
	    { echo "web/src/api/schema.d.ts is not what web/openapi.json generates: run \`make web-client\`" >&2; exit 1; }
	@cd web && npm run --silent lint

unit-web: web/node_modules/.installed
	@cd web && npm test --silent -- --reporter=default --reporter=json --outputFile.json=$(abspath $(TEST_PARTS))/$@.vitest.json

browser-web: setup
	@mkdir -p $(TEST_PARTS)
	@PLAYWRIGHT_JSON_OUTPUT_NAME=$(abspath $(TEST_PARTS))/$@.playwright.json $(CHART) platform with-lab demo -- \
	    sh -c 'cd web && npx playwright test --reporter=list,json tests/dashboard.spec.ts'

# What the browser tests note goes here; the report is made of it.
# Absolute: recipes go to other folders, and VAR may be a relative one.
WEB_VAR := $(abspath $(VAR))/web
WEB_PARTS := $(WEB_VAR)/parts
WEB_RECORDING := $(WEB_VAR)/network-500.jsonl.gz
WEB_SMALL := $(WEB_VAR)/network-8.jsonl.gz
RECORDER := tests/support/recorded_network.py
PLAYWRIGHT = cd $(ROOT)/web && CHART_WEB_PARTS=$(WEB_PARTS) CHART_RECORDING=$(WEB_RECORDING) npx playwright test

# Every part is run, also after one that failed, so that the report is as full as it can be.
web-test: setup $(WEB_RECORDING) ## measure the dashboard: axe on every page, web vitals, frames of a large network (15 minutes); writes var/web/report.json
	@rm -rf $(WEB_PARTS); failed=0; \
	$(CHART) platform with-lab demo -- sh -c '$(PLAYWRIGHT) tests/pages.spec.ts tests/measure-platform.spec.ts' || failed=1; \
	($(PLAYWRIGHT) tests/measure-recorded.spec.ts tests/outage.spec.ts) || failed=1; \
	node web/tests/report.mjs $(WEB_VAR) || failed=1; \
	exit $$failed

# The parts of it, one at a time. The first two need a platform with the demo lab (CHART_SERVER), the third no platform.
web-test-pages:
	@$(PLAYWRIGHT) tests/pages.spec.ts

web-test-platform:
	@$(PLAYWRIGHT) tests/measure-platform.spec.ts

web-test-recorded: web/dist/index.html $(WEB_RECORDING)
	@$(PLAYWRIGHT) tests/measure-recorded.spec.ts tests/outage.spec.ts

# Making one needs the installed packages and the generated messages, but is not repeated when those change.
$(WEB_RECORDING): $(RECORDER) | $(VENV)/.installed $(BUILD)/.proto-python
	@cd tests && $(PYTHON) -m support.recorded_network make $@

web-visual: setup $(WEB_SMALL) ## compare pages of a small recorded network with their pictures of before (UPDATE=1: keep the new ones)
	@cd web && CHART_RECORDING=$(WEB_SMALL) npx playwright test tests/visual.spec.ts $(if $(UPDATE),--update-snapshots=all)

$(WEB_SMALL): $(RECORDER) | $(VENV)/.installed $(BUILD)/.proto-python
	@cd tests && $(PYTHON) -m support.recorded_network make $@ --nodes 8 --links 22 --wander 0

web-pictures: setup ## take the pictures of the dashboard for the documentation
	@mkdir -p docs/images
	@CHART_PICTURES=$(ROOT)/docs/images $(CHART) platform with-lab demo -- sh -c 'cd web && npx playwright test tests/pictures.spec.ts'
