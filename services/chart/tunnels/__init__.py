"""Elastic tunnels: how many TCP connections a tunnel needs for its target bandwidth (Guirguis et al., 2003)."""
