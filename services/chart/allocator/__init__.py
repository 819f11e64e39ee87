"""Allocator: one explicit rate per link, computed from the link's load ten times a second."""
