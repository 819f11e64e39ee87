"""Models of links, tunnels and probing in fast motion: for property tests and for choosing gains."""
