"""Rates for pods: annotations of pods and RateRequest objects of a Kubernetes cluster become rate requests."""
