"""The gateway: REST for applications and the dashboard, live events, the built dashboard. It owns nothing durable."""
