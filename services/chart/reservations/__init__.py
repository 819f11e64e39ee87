"""Reservations: requests for a rate, admission over every link of the path, and what the agents confirmed."""
