# The dashboard: build, lint, unit tests, browser tests.
SETUP += web
LINT += lint-web
UNIT += unit-web
BROWSER += browser-web

WEB_SOURCES := $(shell find web/src web/public web/index.html web/vite.config.ts -type f)

##@ Dashboard
.PHONY: web web-client lint-web unit-web browser-web web-pictures
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
	@cd web && npm run --silent lint

unit-web: web/node_modules/.installed
	@cd web && npm test --silent

browser-web: setup
	@$(CHART) platform with-lab demo -- sh -c 'cd web && npx playwright test tests/dashboard.spec.ts'

web-pictures: setup ## take the pictures of the dashboard for the documentation
	@mkdir -p docs/images
	@CHART_PICTURES=$(ROOT)/docs/images $(CHART) platform with-lab demo -- sh -c 'cd web && npx playwright test tests/pictures.spec.ts'
