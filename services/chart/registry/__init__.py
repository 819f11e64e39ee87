"""Registry: nodes, links, policies and sensing configurations, as operators state them."""
