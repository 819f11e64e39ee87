# One version for everything (VERSION), and the client as a wheel.
LINT += lint-version

##@ Packages
.PHONY: version lint-version client-wheel
version: $(VENV)/.installed ## write the version of the file VERSION wherever a version stands
	@$(PYTHON) tools/version.py

lint-version: $(VENV)/.installed
	@$(PYTHON) tools/version.py --check

client-wheel: $(VENV)/.installed ## the Python client as a wheel; var/packages/wheel
	@$(VENV)/bin/uv build --quiet --wheel --out-dir $(VAR)/packages/wheel clients/python
