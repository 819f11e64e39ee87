# What is tried against the authority, with figures. It measures, so it runs by itself and not in `make test`.
LONG += threat-test

.PHONY: threat-test
threat-test: setup ## forgeries, stolen certificates, floods, rotation, revocation, kill -9 (7 minutes); writes var/threats/report.json
	@cd tests && $(PYTHON) -m threats.threats --out $(VAR)/threats
