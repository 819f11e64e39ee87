# Container images, and what runs them. They need Docker (Debian's docker.io is installed), so compose is tried in
# `make verify-all`, where an engine answers or can be started.
LONG += verify-compose
IMAGES_SYFT := $(BUILD)/tools/syft
IMAGES_VERSION = $(or $(VERSION),$(shell cat VERSION))

##@ Deploy
.PHONY: images images-down
images: $(BUILD)/.packages-images $(IMAGES_SYFT) ## build every container image, with its bill of materials; sizes in var/images/report.json
	@deploy/images/build $(BUILD) $(VAR)/images/report.json

images-down: ## stop the Docker engine that `make images` started
	@deploy/images/engine down $(BUILD)/docker

##@ Compose
.PHONY: compose-up compose-down compose-test verify-compose
compose-up: $(BUILD)/.packages-compose ## start the whole platform with Docker (LAYERS=observability adds Prometheus and Grafana)
	@deploy/compose/compose build
	@deploy/compose/compose up -d
	@echo "compose: passwords are in var/compose/secrets.env; deploy/compose/compose ps shows what runs"

compose-down: ## stop what `make compose-up` started; streams and database stay
	@deploy/compose/compose down

compose-test: $(VENV)/.installed images $(BUILD)/.packages-compose ## the whole platform with Docker: up, the demo's request, upgrade from the previous version under load, down
	@previous=$$(deploy/compose/previous $(BUILD) $(IMAGES_VERSION)) && \
	    $(PYTHON) deploy/compose/compose_test.py --previous "$$previous" --tag $(IMAGES_VERSION) --report $(VAR)/compose/report.json

verify-compose: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-compose && deploy/images/engine up $(BUILD)/docker >/dev/null; then \
	    $(MAKE) compose-test; else $(call left_out,compose-test,no Docker engine answers and none can be started); fi

$(BUILD)/.packages-images: deploy/images/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/images/packages.txt
	@touch $@

.PHONY: collector
# The collector of traces for where its image cannot be pulled (compose.standins-observability.yml).
collector: $(BUILD)/bin/otelcol

$(BUILD)/bin/otelcol: deploy/collector/main.go deploy/collector/go.mod
	@echo "collector: building it, this takes some minutes"
	@mkdir -p $(@D) $(BUILD)/collector && cp deploy/collector/main.go deploy/collector/go.mod $(BUILD)/collector/
	@cd $(BUILD)/collector && go mod tidy -e >tidy.log 2>&1 && go build -trimpath -ldflags "-s -w" -o $@.new . && mv $@.new $@

# Debian's docker-compose is for engines without a `docker compose` of their own.
$(BUILD)/.packages-compose: $(BUILD)/.packages-images deploy/compose/packages.txt
	@docker compose version >/dev/null 2>&1 || deploy/install-packages deploy/compose/packages.txt
	@touch $@

$(IMAGES_SYFT):
	@echo "images: building syft, which writes bills of materials"
	@mkdir -p $(@D) && GOBIN=$(@D) go install github.com/anchore/syft/cmd/syft@v1.33.0
