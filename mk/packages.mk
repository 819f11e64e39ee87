# Debian packages: everything that the distribution already keeps well.
SETUP += packages

.PHONY: packages
packages: $(BUILD)/.packages

$(BUILD)/.packages: deploy/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/packages.txt
	@touch $@
