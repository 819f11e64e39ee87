"""Sub-commands of `chart`, one module per group."""
