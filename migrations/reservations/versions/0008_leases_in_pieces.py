"""A lease that becomes smaller holds a link in pieces, one after the other: a holder has one commitment for each start.

The version before goes on working beside the new one: it never wrote two of one holder on a link.
"""

from alembic import op

revision = "reservations_0008"
down_revision = "reservations_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count the start among what tells commitments apart."""
    op.execute("SET LOCAL lock_timeout = '4s'")
    op.execute(
        "ALTER TABLE commitment DROP CONSTRAINT commitment_pkey, ADD PRIMARY KEY (request_id, link_id, start_us)"
    )


def downgrade() -> None:
    """Drop what is left of leases beyond their first piece: at most a minute from now on."""
    op.execute(
        "DELETE FROM commitment a USING commitment b WHERE a.request_id = b.request_id AND a.link_id = b.link_id"
        " AND a.start_us > b.start_us"
    )
    op.execute("ALTER TABLE commitment DROP CONSTRAINT commitment_pkey, ADD PRIMARY KEY (request_id, link_id)")
