"""Inference: estimates for all pairs of nodes from the few that were measured."""
