"""What operators set for the whole platform.

Only adds: the version before goes on working beside the new one.
"""

from alembic import op

revision = "registry_0005"
down_revision = "registry_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; shaped as those of the other kinds, with one row."""
    op.execute(
        "CREATE TABLE platform_settings (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )


def downgrade() -> None:
    """Drop the table."""
    op.execute("DROP TABLE platform_settings")
