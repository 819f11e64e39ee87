"""Whether flows of an enforced request are seen, and an end of enforcement for requests that are over.

Only adds: the version before goes on working beside the new one.
"""

from alembic import op

revision = "reservations_0004"
down_revision = "reservations_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Begin to watch what is enforced now; what ended shows no enforcement any more."""
    op.execute("SET LOCAL lock_timeout = '4s'")
    op.execute("ALTER TABLE rate_request ADD COLUMN quiet_since_us bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE rate_request ADD COLUMN unmatched boolean NOT NULL DEFAULT false")
    op.execute("COMMENT ON COLUMN rate_request.quiet_since_us IS 'since when no flow was seen; 0: it is not enforced'")
    op.execute("COMMENT ON COLUMN rate_request.unmatched IS 'the owner is warned that no flow matches'")
    # 2 and 4: ENFORCED and ENDED; 3: ACTIVE; 4, 5, 6: RELEASED, EXPIRED, CANCELLED.
    op.execute(
        "UPDATE rate_request SET quiet_since_us = (extract(epoch FROM now()) * 1000000)::bigint"
        " WHERE enforcement = 2 AND lifecycle = 3"
    )
    op.execute("UPDATE rate_request SET enforcement = 4 WHERE lifecycle IN (4, 5, 6)")


def downgrade() -> None:
    """Drop what was added; what ended is told as pending, which the version before knows."""
    op.execute("UPDATE rate_request SET enforcement = 1 WHERE enforcement = 4")
    op.execute("ALTER TABLE rate_request DROP COLUMN quiet_since_us, DROP COLUMN unmatched")
