"""Archiver: from the streams to PostgreSQL, and history out of it."""
