"""What operators state of elastic tunnels; outbox and audit."""

from alembic import op

from chart.common.migrate import common_tables, drop_common_tables

revision = "tunnels_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table. `body` is the message TunnelSettings as JSON, without its revision."""
    common_tables(op)
    op.execute(
        "CREATE TABLE tunnel (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    # From one sequence, so that a tunnel stated anew never repeats a revision it had before.
    op.execute("CREATE SEQUENCE revision")


def downgrade() -> None:
    """Drop the table."""
    op.execute("DROP TABLE tunnel")
    op.execute("DROP SEQUENCE revision")
    drop_common_tables(op)
