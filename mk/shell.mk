# Shell scripts: lint.
LINT += lint-shell

SHELL_SCRIPTS := platform/install-packages platform/audit tools/pytest-again .ci/run

.PHONY: lint-shell
lint-shell: packages
	@shellcheck $(SHELL_SCRIPTS)
