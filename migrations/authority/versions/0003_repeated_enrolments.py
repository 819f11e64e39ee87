"""Whose key a one-time token was used with, so that who did not hear the answer gets it again."""

from alembic import op

revision = "authority_0003"
down_revision = "authority_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that the version before leaves out."""
    op.execute("ALTER TABLE enrolment ADD COLUMN key_digest bytea")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE enrolment DROP COLUMN key_digest")
