# The Python environment, its locks, lint and tests.
SETUP += python
LINT += lint-python
UNIT += unit-python
CONTRACT += contract-python
LAB_SMOKE += lab-python
LONG += slow-python

# Tests that failed are run again, at most twice, in sessions of their own, and listed: the tests run against a real broker,
# real databases and real links, on machines whose processors may be taken away (decision record 0017). RERUNS=0: none.
RERUNS ?= 2
PYTEST = tools/pytest-again $(RERUNS) $(PYTHON) -m pytest --durations=10 --count-into $(TEST_PARTS)/$@.pytest.json
UV_COMPILE := $(VENV)/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11
PYTHON_SOURCES := services clients/python lab tests conftest.py

.PHONY: python
python: $(VENV)/.installed

$(VENV)/.requirements: tests/requirements.txt
	@echo "python: installing the locked dependencies"
	@test -x $(VENV)/bin/python || python3 -m venv $(VENV)
	@$(VENV)/bin/pip install -q --disable-pip-version-check --require-hashes -r tests/requirements.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.requirements services/pyproject.toml clients/python/pyproject.toml lab/pyproject.toml
	@$(VENV)/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e services -e clients/python -e lab
	@touch $@

##@ Python
.PHONY: lock lint-python format-python unit-python contract-python lab-python slow-python
lock: ## resolve the Python dependencies anew, with hashes and without any registry's address
	@$(UV_COMPILE) --upgrade $(addprefix --no-emit-package ,chart-services chart-client chart-lab) tests/requirements.in -o tests/requirements.txt
	@$(UV_COMPILE) -c tests/requirements.txt --extra services services/pyproject.toml -o services/requirements.txt
	@$(UV_COMPILE) -c tests/requirements.txt --extra analysis services/pyproject.toml -o services/requirements-analysis.txt
	@$(UV_COMPILE) -c tests/requirements.txt --extra sensor-pod services/pyproject.toml -o services/requirements-pod.txt
	@$(UV_COMPILE) -c tests/requirements.txt services/requirements-build.in -o services/requirements-build.txt

lint-python: python proto
	@$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	@$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	@$(VENV)/bin/mypy

format-python: ## rewrite the Python sources as ruff wants them
	@$(VENV)/bin/ruff check --fix $(PYTHON_SOURCES)
	@$(VENV)/bin/ruff format $(PYTHON_SOURCES)

unit-python: python proto
	@$(PYTEST) -m "not contract and not lab and not slow" --numprocesses $(PARALLEL) --dist loadfile

# Each process has a broker and a database of its own.
contract-python: python proto kafka
	@$(PYTEST) -m "contract and not slow" --numprocesses $(PARALLEL) --dist loadfile

lab-python: python proto
	@$(PYTEST) -m "lab and not slow"

# Slow tests of simulation, tunnels and chart-tunnel have targets of their own.
slow-python: setup
	@$(PYTEST) -m slow $(addprefix --ignore ,services/tests/gateway/test_keycloak.py lab/tests/simulation lab/tests/models tests/tunnel_program)
