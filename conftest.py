"""Every test of the project has the fixtures of tests/support/fixtures.py, and the plugins that count and judge."""

pytest_plugins = ["support.fixtures", "support.skips", "support.counting", "support.figures"]
