# Rules of the whole repository: known weaknesses of locked dependencies, unused code, who imports whom.
LINT += lint-dependencies
PYTHON_SOURCES += tools

GOVULNCHECK := $(BUILD)/tools/govulncheck

# $(call left_out,NAME,REASON): a part of `make verify-all` that cannot run here; verify-all prints these at its end.
left_out = mkdir -p $(VAR)/verify && echo "$(strip $(1)): $(strip $(2))" | tee -a $(VAR)/verify/left-out.txt >&2

.PHONY: lint-dependencies
# Where govulncheck is not to be had, the audit says that nobody was asked about Go modules.
lint-dependencies: python packages # known weaknesses of every lock; says what was not audited and why
	@test -x $(GOVULNCHECK) || { mkdir -p $(BUILD)/tools; echo "audit: building govulncheck"; \
	    GOBIN=$(BUILD)/tools go install golang.org/x/vuln/cmd/govulncheck@v1.9.0; } || true
	@$(PYTHON) tools/audit.py --govulncheck $(GOVULNCHECK)
