"""Groups of pairs that users look at together."""

from alembic import op

revision = "archiver_0004"
down_revision = "archiver_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; the running version does not see it."""
    op.execute(
        "CREATE TABLE pair_group (id text PRIMARY KEY, revision bigint NOT NULL, owner text NOT NULL,"
        " body bytea NOT NULL, updated_at timestamptz NOT NULL DEFAULT now())"
    )


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP TABLE pair_group")
