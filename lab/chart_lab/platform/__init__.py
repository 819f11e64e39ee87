"""The platform on one machine: broker, database, services under one process manager, and the demonstration."""
