"""Requests for a rate, what they commit on which link, what agents confirmed, idempotency keys; outbox and audit."""

from alembic import op

from chart.common.migrate import common_tables, drop_common_tables

revision = "reservations_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables. Times are microseconds since the epoch, rates bit/s; states are the numbers of the
    protobuf enums.
    """
    common_tables(op)
    op.execute(
        """
        CREATE TABLE rate_request (
            id text PRIMARY KEY,
            revision bigint NOT NULL,
            owner text NOT NULL,
            specification bytea NOT NULL,
            selector bytea NOT NULL,
            lifecycle smallint NOT NULL,
            enforcement smallint NOT NULL,
            service_state smallint NOT NULL,
            callback_state smallint NOT NULL,
            granted_bps bigint NOT NULL,
            link_ids text[] NOT NULL,
            confirming_nodes text[] NOT NULL,
            start_us bigint NOT NULL,
            end_us bigint NOT NULL,
            created_at_us bigint NOT NULL,
            updated_at_us bigint NOT NULL,
            enforced_at_us bigint NOT NULL,
            reason text NOT NULL,
            generation bigint NOT NULL,
            content_generation bigint NOT NULL,
            grant_issued_at_us bigint NOT NULL,
            grant_valid_until_us bigint NOT NULL,
            confirm_by_us bigint NOT NULL,
            due_at_us bigint NOT NULL,
            traceparent text NOT NULL,
            CHECK (start_us < end_us)
        )
        """
    )
    op.execute("COMMENT ON COLUMN rate_request.specification IS 'chart.v1.RateRequestSpecification, serialised'")
    op.execute("COMMENT ON COLUMN rate_request.selector IS 'chart.v1.FlowSelector, serialised'")
    op.execute("CREATE INDEX rate_request_due ON rate_request (due_at_us)")
    op.execute("CREATE INDEX rate_request_owner ON rate_request (owner, id)")
    op.execute("CREATE INDEX rate_request_lifecycle ON rate_request (lifecycle, id)")
    # One row per link that was ever asked for: admission locks these, in id order.
    op.execute("CREATE TABLE link (id text PRIMARY KEY)")
    op.execute(
        """
        CREATE TABLE commitment (
            request_id text NOT NULL REFERENCES rate_request (id) ON DELETE CASCADE,
            link_id text NOT NULL REFERENCES link (id),
            rate_bps bigint NOT NULL CHECK (rate_bps > 0),
            start_us bigint NOT NULL,
            end_us bigint NOT NULL,
            PRIMARY KEY (request_id, link_id)
        )
        """
    )
    op.execute("CREATE INDEX commitment_link ON commitment (link_id, end_us) INCLUDE (rate_bps, start_us)")
    op.execute(
        """
        CREATE TABLE confirmation (
            request_id text NOT NULL REFERENCES rate_request (id) ON DELETE CASCADE,
            node text NOT NULL,
            status bytea NOT NULL,
            PRIMARY KEY (request_id, node)
        )
        """
    )
    op.execute("COMMENT ON COLUMN confirmation.status IS 'chart.v1.GrantStatus, serialised'")
    op.execute(
        """
        CREATE TABLE idempotency_key (
            owner text NOT NULL,
            key text NOT NULL,
            body_hash bytea NOT NULL,
            answer bytea,
            created_at_us bigint NOT NULL,
            PRIMARY KEY (owner, key)
        )
        """
    )
    op.execute("CREATE INDEX idempotency_key_age ON idempotency_key (created_at_us)")


def downgrade() -> None:
    """Drop the tables."""
    op.execute("DROP TABLE idempotency_key, confirmation, commitment, link, rate_request")
    drop_common_tables(op)
