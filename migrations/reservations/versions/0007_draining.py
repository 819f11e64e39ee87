"""What was released and may still be applied somewhere, on links and of requests, and requests that wait for it.

Only adds: the version before goes on working beside the new one; what it releases does not drain.
"""

from alembic import op

revision = "reservations_0007"
down_revision = "reservations_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Begin to keep what drains."""
    op.execute("SET LOCAL lock_timeout = '4s'")
    op.execute("ALTER TABLE link ADD COLUMN draining jsonb NOT NULL DEFAULT '[]'")
    op.execute("COMMENT ON COLUMN link.draining IS 'request, bit/s, until when, generation of what drains'")
    op.execute(
        "ALTER TABLE rate_request ADD COLUMN waits_until_us bigint NOT NULL DEFAULT 0,"
        " ADD COLUMN in_force_bps bigint NOT NULL DEFAULT 0, ADD COLUMN draining text NOT NULL DEFAULT ''"
    )
    op.execute("COMMENT ON COLUMN rate_request.waits_until_us IS '0: its rate is in force'")
    op.execute("COMMENT ON COLUMN rate_request.draining IS 'JSON: nodes that may apply earlier rates, and these'")
    op.execute("CREATE INDEX rate_request_waiting ON rate_request (id) WHERE waits_until_us > 0")


def downgrade() -> None:
    """Drop what was added; nothing waits any more."""
    op.execute("DROP INDEX rate_request_waiting")
    op.execute("ALTER TABLE rate_request DROP COLUMN waits_until_us, DROP COLUMN in_force_bps, DROP COLUMN draining")
    op.execute("ALTER TABLE link DROP COLUMN draining")
