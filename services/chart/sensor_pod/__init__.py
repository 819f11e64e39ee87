"""Sensor pod of one node: repositories, scheduler, sensor drivers (Brassil et al., The CHART System, section 6)."""
