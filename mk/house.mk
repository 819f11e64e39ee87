# Rules of the whole repository: known weaknesses of locked dependencies, unused code, who imports whom.
LINT += lint-dependencies lint-unused lint-unused-c lint-unused-web lint-imports lint-house
PYTHON_SOURCES += tools

GOVULNCHECK := $(BUILD)/tools/govulncheck

# $(call left_out,NAME,REASON): a part of `make verify-all` that cannot run here; verify-all prints these at its end.
left_out = mkdir -p $(dir $(LEFT_OUT)) && echo "$(strip $(1)): $(strip $(2))" | tee -a $(LEFT_OUT) >&2

.PHONY: lint-dependencies
# Where govulncheck is not to be had, the audit says that nobody was asked about Go modules.
lint-dependencies: python packages # known weaknesses of every lock; says what was not audited and why
	@test -x $(GOVULNCHECK) || { mkdir -p $(BUILD)/tools; echo "audit: building govulncheck"; \
	    GOBIN=$(BUILD)/tools go install golang.org/x/vuln/cmd/govulncheck@v1.9.0; } || true
	@$(PYTHON) tools/audit.py --govulncheck $(GOVULNCHECK)

# Code that nobody uses, then code that only tests use; dependencies that are declared and not imported, or the reverse.
PRODUCTION := services/chart clients/python/chart_client lab/chart_lab deploy migrations dataplane/lib/qos tools
DISTRIBUTIONS := services clients/python lab

.PHONY: lint-unused lint-unused-c lint-unused-web lint-imports
lint-unused: python proto
	@$(VENV)/bin/vulture
	@$(VENV)/bin/vulture $(PRODUCTION)
	@for folder in $(DISTRIBUTIONS); do \
	    (cd $$folder && $(VENV)/bin/deptry --no-ansi . 2>&1) >$(BUILD)/deptry.log || { cat $(BUILD)/deptry.log; exit 1; }; done

lint-unused-c: packages
	@tools/unused-c

lint-unused-web: web/node_modules/.installed
	@cd web && npx knip

# Who may import whom, and no circles: the contracts stand in pyproject.toml.
lint-imports: python proto
	@$(VENV)/bin/lint-imports --no-cache >$(BUILD)/imports.log || { cat $(BUILD)/imports.log; exit 1; }

.PHONY: lint-house
lint-house: python # what the source tree looks like, in figures: var/house/report.json
	@$(PYTHON) tools/house.py --out $(VAR)/house/report.json
