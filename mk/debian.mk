# Debian packages of what runs on nodes.
DEBIAN_VERSION := $(shell cat VERSION)

##@ Packages
.PHONY: debian-packages
debian-packages: dataplane tunnel proxy sensors $(BUILD)/.packages-debian ## Debian packages of agent, sensors, tunnel and proxy, lintian clean; var/packages/debian
	@deploy/debian/build $(BUILD) $(VAR)/packages/debian $(DEBIAN_VERSION)

$(BUILD)/.packages-debian: deploy/debian/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/debian/packages.txt
	@touch $@

LONG += verify-packages

.PHONY: packages-test verify-packages
packages-test: $(VENV)/.installed debian-packages $(BUILD)/.packages-debian-test ## the packages in a booted Debian under QEMU: installed, enforcing, upgraded, removed, purged (10 minutes); var/packages/report.json
	@PYTHONPATH=tools $(PYTHON) deploy/debian/test/packages_test.py --build $(BUILD)/debian-guest --packages $(VAR)/packages/debian \
	    --report $(VAR)/packages/report.json

verify-packages: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-debian-test; then \
	    $(MAKE) packages-test; else $(call left_out,packages-test,QEMU cannot be installed here); fi

$(BUILD)/.packages-debian-test: deploy/debian/test/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/debian/test/packages.txt
	@touch $@

LONG += verify-version-skew

.PHONY: version-skew verify-version-skew
version-skew: setup ## agents of the previous version with this platform and the reverse, under load (root, 8 minutes); var/packages/report.json
	@PYTHONPATH=tools $(PYTHON) deploy/skew/version_skew.py --build $(BUILD) --report $(VAR)/packages/report.json

verify-version-skew: $(VENV)/.installed
	@if git cat-file -e "$$(tail -n 1 deploy/skew/previous)^{commit}"; then \
	    $(MAKE) version-skew; else $(call left_out,version-skew,the previous version is not in this clone); fi
