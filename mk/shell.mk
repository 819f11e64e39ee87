# Shell scripts: lint.
LINT += lint-shell

SHELL_SCRIPTS := platform/install-packages platform/audit .ci/run

.PHONY: lint-shell
lint-shell: packages
	@shellcheck $(SHELL_SCRIPTS)
