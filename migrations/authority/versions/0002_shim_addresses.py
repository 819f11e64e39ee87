"""Next hops name the address at which the UDP shim reaches the next element."""

from alembic import op

revision = "authority_0002"
down_revision = "authority_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Entries that stand get none here: those of the topology are written again by the first reckoning."""
    op.execute("ALTER TABLE next_hop ADD COLUMN shim_address inet")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE next_hop DROP COLUMN shim_address")
