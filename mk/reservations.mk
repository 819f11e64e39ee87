# Rate requests: drawings of their state machines.
LINT += lint-drawings

.PHONY: drawings lint-drawings
drawings: ## draw the state machines of a rate request into docs/rate-requests.md
	@$(PYTHON) -m chart.reservations.drawings

lint-drawings:
	@$(PYTHON) -m chart.reservations.drawings --check
