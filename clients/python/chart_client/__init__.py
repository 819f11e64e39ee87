"""Typed client of CHART (REST over httpx) and the `chart` command."""
