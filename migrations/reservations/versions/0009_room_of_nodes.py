"""Who holds a grant at a node: requests by the nodes of their paths.

What is held at nodes stands in `profile` and `link` beside what is committed on links, under ids that no link has. Only
adds: the version before goes on working beside the new one; what it grants or releases is counted when the profiles of
nodes are made anew, which happens at every start of the new version and once an hour.
"""

from alembic import op

revision = "reservations_0009"
down_revision = "reservations_0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index that profiles of nodes are made from."""
    op.execute("SET LOCAL lock_timeout = '4s'")
    op.execute(
        "CREATE INDEX rate_request_live_nodes ON rate_request USING gin (confirming_nodes) WHERE lifecycle IN (1, 2, 3)"
    )


def downgrade() -> None:
    """Drop it, and what is counted of nodes."""
    op.execute("DROP INDEX rate_request_live_nodes")
    op.execute("DELETE FROM profile WHERE link_id LIKE 'node/%'")
    op.execute("DELETE FROM link WHERE id LIKE 'node/%'")
