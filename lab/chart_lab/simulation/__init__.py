"""A deterministic simulation of the control plane: real services over simulated time, streams, database and faults."""
