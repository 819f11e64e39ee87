# Container images, and what runs them. Not part of `make test`: they need Docker (Debian's docker.io is installed).
IMAGES_SYFT := $(BUILD)/tools/syft

##@ Deploy
.PHONY: images images-down
images: $(BUILD)/.packages-images $(IMAGES_SYFT) ## build every container image, with its bill of materials; sizes in var/images/report.json
	@platform/images/build $(BUILD) $(VAR)/images/report.json

images-down: ## stop the Docker engine that `make images` started
	@platform/images/engine down $(BUILD)/docker

$(BUILD)/.packages-images: platform/images/packages.txt platform/install-packages
	@mkdir -p $(@D)
	@platform/install-packages platform/images/packages.txt
	@touch $@

$(IMAGES_SYFT):
	@echo "images: building syft, which writes bills of materials"
	@mkdir -p $(@D) && GOBIN=$(@D) go install github.com/anchore/syft/cmd/syft@v1.33.0
