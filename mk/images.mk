# Container images, and what runs them. Not part of `make test`: they need Docker (Debian's docker.io is installed).
IMAGES_SYFT := $(BUILD)/tools/syft
IMAGES_VERSION = $(or $(VERSION),$(shell sed -n 's/^version = "\(.*\)"/\1/p' services/pyproject.toml))

##@ Deploy
.PHONY: images images-down
images: $(BUILD)/.packages-images $(IMAGES_SYFT) ## build every container image, with its bill of materials; sizes in var/images/report.json
	@platform/images/build $(BUILD) $(VAR)/images/report.json

images-down: ## stop the Docker engine that `make images` started
	@platform/images/engine down $(BUILD)/docker

##@ Compose
.PHONY: compose-up compose-down compose-test
compose-up: $(BUILD)/.packages-compose ## start the whole platform with Docker (LAYERS=observability adds Prometheus and Grafana)
	@platform/compose/compose build
	@platform/compose/compose up -d
	@echo "compose: passwords are in var/compose/secrets.env; platform/compose/compose ps shows what runs"

compose-down: ## stop what `make compose-up` started; streams and database stay
	@platform/compose/compose down

compose-test: $(VENV)/.installed images $(BUILD)/.packages-compose ## the whole platform with Docker: up, the demo's request, upgrade from the previous version under load, down
	@previous=$$(platform/compose/previous $(BUILD) $(IMAGES_VERSION)) && \
	    $(PYTHON) platform/compose/compose_test.py --previous "$$previous" --tag $(IMAGES_VERSION) --report $(VAR)/compose/report.json

$(BUILD)/.packages-images: platform/images/packages.txt platform/install-packages
	@mkdir -p $(@D)
	@platform/install-packages platform/images/packages.txt
	@touch $@

# Debian's docker-compose is for engines without a `docker compose` of their own.
$(BUILD)/.packages-compose: $(BUILD)/.packages-images platform/compose/packages.txt
	@docker compose version >/dev/null 2>&1 || platform/install-packages platform/compose/packages.txt
	@touch $@

$(IMAGES_SYFT):
	@echo "images: building syft, which writes bills of materials"
	@mkdir -p $(@D) && GOBIN=$(@D) go install github.com/anchore/syft/cmd/syft@v1.33.0
