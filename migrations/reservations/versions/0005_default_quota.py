"""A finite quota for applications without one of their own, and a bound of what is held.

The default quota is made once: an operator may change or remove it. What is new stands in a table of its own, because
the version before takes every column of `quota`; beside the new version it refuses requests without an end.
"""

from alembic import op

revision = "reservations_0005"
down_revision = "reservations_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, the row, and the index that use is summed from."""
    op.execute(
        "CREATE TABLE held_quota (owner text PRIMARY KEY REFERENCES quota ON DELETE CASCADE,"
        " max_held_bps bigint NOT NULL)"
    )
    # 1000 requests, 10 Gbit/s, priorities up to 127, ends up to 90 days ahead; 1 Gbit/s held.
    op.execute(
        "INSERT INTO quota (owner, revision, max_requests, max_total_bps, max_priority_plus_one, horizon_us)"
        " VALUES ('default', 1, 1000, 10000000000, 128, 7776000000000) ON CONFLICT (owner) DO NOTHING"
    )
    op.execute("INSERT INTO held_quota VALUES ('default', 1000000000)")
    op.execute(
        "CREATE INDEX rate_request_live_use ON rate_request (owner) INCLUDE (granted_bps, lifecycle)"
        " WHERE lifecycle IN (1, 2, 3)"
    )
    op.execute("DROP INDEX rate_request_live_owner")


def downgrade() -> None:
    """Take it away; the default quota stays as far as the version before knows it."""
    op.execute(
        "CREATE INDEX rate_request_live_owner ON rate_request (owner) INCLUDE (granted_bps)"
        " WHERE lifecycle IN (1, 2, 3)"
    )
    op.execute("DROP INDEX rate_request_live_use")
    op.execute("DROP TABLE held_quota")
