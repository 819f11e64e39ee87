# Debian packages: everything that the distribution already keeps well.
SETUP += packages

.PHONY: packages
packages: $(BUILD)/.packages

$(BUILD)/.packages: platform/packages.txt platform/install-packages
	@mkdir -p $(@D)
	@platform/install-packages platform/packages.txt
	@touch $@
