"""CHART: the services of the control plane, the lab, and what they share."""
