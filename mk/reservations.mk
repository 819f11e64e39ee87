# Rate requests: drawings of their state machines, and what is measured of admission.
LINT += lint-drawings
LONG += reservations-experiments

.PHONY: drawings lint-drawings
drawings: ## draw the state machines of a rate request into docs/rate-requests.md
	@$(PYTHON) -m chart.reservations.drawings

lint-drawings:
	@$(PYTHON) -m chart.reservations.drawings --check

.PHONY: reservations-experiments
reservations-experiments: setup ## admission, grants and link rate control under load, and 200 kills (35 minutes); var/NAME
	@for name in admission-load admission-churn rate-control-load grant-latency kill-matrix; do \
	    $(VENV)/bin/chart lab run $$name --out $(VAR)/$$name || exit 1; \
	done
