# Shell scripts: lint.
LINT += lint-shell

SHELL_SCRIPTS := deploy/install-packages deploy/debian/build deploy/debian/test/guest-check tools/pytest-again tools/unused-c .ci/run

.PHONY: lint-shell
lint-shell: packages
	@shellcheck $(SHELL_SCRIPTS)
