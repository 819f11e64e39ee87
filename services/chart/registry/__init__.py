"""Registry: nodes, links, policies, sensing configurations and session rules, as operators state them."""
