# The platform on one machine, and the demonstration.
CHART := $(VENV)/bin/chart

##@ Run it
.PHONY: demo up down status
demo: setup ## the main job: sense, ask for a rate, move data with CUBIC, BBR and CHART (KEEP=1 leaves it running)
	@$(CHART) platform demo $(if $(KEEP),--keep)

up: setup ## start broker, database and services (no lab)
	@$(CHART) platform up

down: ## stop the platform and the lab
	@$(CHART) lab down --all
	@$(CHART) platform down

status: ## what runs and whether it is healthy
	@$(CHART) platform status
