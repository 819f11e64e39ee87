"""What every service of CHART shares: streams, outbox, database, settings, telemetry, health, errors, clocks, units."""
