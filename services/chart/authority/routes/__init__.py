"""Routes of the authority, one module per kind of resource."""
