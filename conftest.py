"""Every test of the project has the fixtures of tests/support/fixtures.py: a real Kafka, a real PostgreSQL."""

pytest_plugins = ["support.fixtures"]
