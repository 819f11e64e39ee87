"""Enrolments that can be listed and withdrawn, with what came of them; addresses of the shim beside next hops."""

from alembic import op

revision = "authority_0002"
down_revision = "authority_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns that the version before can leave out."""
    # repetition: digest of who asked and of the Idempotency-Key. serial: of the certificate that the token led to.
    op.execute("ALTER TABLE enrolment ADD COLUMN id text NOT NULL UNIQUE DEFAULT gen_random_uuid()::text,"
               " ADD COLUMN created_at_us bigint NOT NULL DEFAULT 0, ADD COLUMN withdrawn_at_us bigint,"
               " ADD COLUMN serial text, ADD COLUMN repetition bytea UNIQUE")  # fmt: skip
    op.execute("ALTER TABLE next_hop ADD COLUMN shim_address inet")


def downgrade() -> None:
    """Drop them."""
    op.execute("ALTER TABLE next_hop DROP COLUMN shim_address")
    op.execute("ALTER TABLE enrolment DROP COLUMN id, DROP COLUMN created_at_us, DROP COLUMN withdrawn_at_us,"
               " DROP COLUMN serial, DROP COLUMN repetition")  # fmt: skip
