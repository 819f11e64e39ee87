"""What callers of the gateway have left of their rate limit, shared by its replicas.

Not logged: after a crash everybody has a full allowance. Only adds.
"""

from alembic import op

revision = "reservations_0006"
down_revision = "reservations_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.execute(
        "CREATE UNLOGGED TABLE allowance (name text PRIMARY KEY, tokens double precision NOT NULL,"
        " at timestamptz NOT NULL)"
    )
    op.execute("CREATE INDEX allowance_at ON allowance (at)")


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP TABLE allowance")
