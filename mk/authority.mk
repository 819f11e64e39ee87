# What is tried against the authority, with figures. It measures, so it runs by itself and not in `make test`.
LONG += threat-test

.PHONY: threat-test
threat-test: packages python proto ## forgeries, stolen certificates, rotation, revocation, kill -9; writes var/threats/report.json
	@cd tests && $(PYTHON) -m threats.threats --out $(VAR)/threats
