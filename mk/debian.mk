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
