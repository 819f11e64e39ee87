"""Profiles of what is committed over time, holds, classes, callbacks, quotas, receipts, leases to links.

Only adds: the version before goes on working beside the new one. What that one commits is not in the profiles, so
triggers mark the links that it touched, and the new version makes their profiles anew from the commitments.
"""

from alembic import op

revision = "reservations_0002"
down_revision = "reservations_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns with defaults, tables, triggers; drop foreign keys that cost every admission a look-up."""
    op.execute("SET LOCAL lock_timeout = '4s'")
    op.execute(
        """
        ALTER TABLE rate_request
            ADD COLUMN hold_until_us bigint NOT NULL DEFAULT 0,
            ADD COLUMN source_node text NOT NULL DEFAULT '',
            ADD COLUMN destination_node text NOT NULL DEFAULT '',
            ADD COLUMN ended_at_us bigint NOT NULL DEFAULT 0,
            ADD COLUMN service_reason text NOT NULL DEFAULT '',
            ADD COLUMN history bytea NOT NULL DEFAULT '',
            ADD COLUMN rank smallint NOT NULL DEFAULT 1,
            ADD COLUMN lacking boolean NOT NULL DEFAULT false,
            ADD COLUMN tags jsonb,
            ADD COLUMN words text NOT NULL DEFAULT ''
        """
    )
    op.execute(
        "COMMENT ON COLUMN rate_request.history IS 'former rates: chart.v1.Receipt with rates alone, serialised'"
    )
    op.execute("CREATE INDEX rate_request_lacking ON rate_request (rank DESC, created_at_us) WHERE lacking")
    op.execute("CREATE INDEX rate_request_tags ON rate_request USING gin (tags) WHERE tags IS NOT NULL")
    op.execute(
        "CREATE INDEX rate_request_live_owner ON rate_request (owner) INCLUDE (granted_bps)"
        " WHERE lifecycle IN (1, 2, 3)"
    )
    op.execute(
        """
        ALTER TABLE commitment
            ADD COLUMN kind smallint NOT NULL DEFAULT 0,
            ADD COLUMN rank smallint NOT NULL DEFAULT 1,
            ADD COLUMN profiled boolean NOT NULL DEFAULT false,
            DROP CONSTRAINT commitment_request_id_fkey,
            DROP CONSTRAINT commitment_link_id_fkey
        """
    )
    op.execute("COMMENT ON COLUMN commitment.kind IS '0 firm, 1 maximum rate, which may be oversubscribed'")
    op.execute(
        "ALTER TABLE link ADD COLUMN version bigint NOT NULL DEFAULT 0, ADD COLUMN stale boolean NOT NULL DEFAULT true"
    )
    op.execute("COMMENT ON COLUMN link.version IS 'grows with every change of the profile'")
    op.execute("COMMENT ON COLUMN link.stale IS 'the profile does not hold every commitment: make it anew'")
    op.execute(
        """
        CREATE TABLE profile (
            link_id text NOT NULL,
            kind smallint NOT NULL,
            level smallint NOT NULL,
            number bigint NOT NULL,
            cells bytea NOT NULL,
            PRIMARY KEY (link_id, kind, level, number)
        )
        """
    )
    op.execute("COMMENT ON TABLE profile IS 'blocks of 32 cells of 32^level seconds: bases, then peaks (profile.py)'")
    op.execute(
        """
        CREATE FUNCTION mark_added() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE link SET stale = true
            WHERE id IN (SELECT link_id FROM added WHERE NOT profiled) AND NOT stale;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        """
        CREATE FUNCTION mark_removed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('chart.profiled', true) IS DISTINCT FROM 'on' THEN
                UPDATE link SET stale = true WHERE id IN (SELECT link_id FROM removed) AND NOT stale;
            END IF;
            RETURN NULL;
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER commitment_added AFTER INSERT ON commitment REFERENCING NEW TABLE AS added"
        " FOR EACH STATEMENT EXECUTE FUNCTION mark_added()"
    )
    op.execute(
        "CREATE TRIGGER commitment_removed AFTER DELETE ON commitment REFERENCING OLD TABLE AS removed"
        " FOR EACH STATEMENT EXECUTE FUNCTION mark_removed()"
    )
    _callbacks()
    op.execute(
        """
        CREATE TABLE quota (
            owner text PRIMARY KEY,
            revision bigint NOT NULL,
            max_requests integer NOT NULL,
            max_total_bps bigint NOT NULL,
            max_priority_plus_one integer NOT NULL,
            horizon_us bigint NOT NULL
        )
        """
    )
    op.execute(
        "CREATE TABLE receipt (request_id text PRIMARY KEY, owner text NOT NULL, statement bytea NOT NULL,"
        " stated_at_us bigint NOT NULL)"
    )
    op.execute("COMMENT ON COLUMN receipt.statement IS 'chart.v1.Receipt, serialised'")
    op.execute(
        """
        CREATE TABLE lease (
            link_id text PRIMARY KEY,
            generation bigint NOT NULL,
            rate_bps bigint NOT NULL,
            issued_at_us bigint NOT NULL,
            valid_until_us bigint NOT NULL,
            pieces jsonb NOT NULL,
            drawn_bps bigint NOT NULL
        )
        """
    )


def _callbacks() -> None:
    op.execute(
        """
        CREATE TABLE callback (
            id text PRIMARY KEY,
            request_id text NOT NULL,
            owner text NOT NULL,
            event text NOT NULL,
            url text NOT NULL,
            body text NOT NULL,
            state smallint NOT NULL,
            attempts integer NOT NULL DEFAULT 0,
            created_at_us bigint NOT NULL,
            next_attempt_us bigint NOT NULL,
            delivered_at_us bigint NOT NULL DEFAULT 0,
            last_error text NOT NULL DEFAULT '',
            traceparent text NOT NULL DEFAULT ''
        )
        """
    )
    op.execute("CREATE INDEX callback_waiting ON callback (next_attempt_us) WHERE state = 2")
    op.execute("CREATE INDEX callback_request ON callback (request_id, id)")
    op.execute("CREATE INDEX callback_owner ON callback (owner, id)")
    op.execute(
        """
        CREATE TABLE callback_secret (
            owner text PRIMARY KEY,
            secret bytea NOT NULL,
            created_at_us bigint NOT NULL,
            former bytea,
            former_until_us bigint NOT NULL DEFAULT 0
        )
        """
    )


def downgrade() -> None:
    """Drop what was added; links keep their locks' rows."""
    op.execute("DROP TABLE lease, receipt, quota, callback_secret, callback, profile")
    op.execute("DROP TRIGGER commitment_added ON commitment")
    op.execute("DROP TRIGGER commitment_removed ON commitment")
    op.execute("DROP FUNCTION mark_added(), mark_removed()")
    op.execute("DELETE FROM commitment c WHERE NOT EXISTS (SELECT 1 FROM rate_request r WHERE r.id = c.request_id)")
    op.execute(
        "ALTER TABLE commitment DROP COLUMN kind, DROP COLUMN rank, DROP COLUMN profiled,"
        " ADD CONSTRAINT commitment_request_id_fkey FOREIGN KEY (request_id) REFERENCES rate_request (id)"
        " ON DELETE CASCADE, ADD CONSTRAINT commitment_link_id_fkey FOREIGN KEY (link_id) REFERENCES link (id)"
    )
    op.execute("ALTER TABLE link DROP COLUMN version, DROP COLUMN stale")
    op.execute(
        "ALTER TABLE rate_request DROP COLUMN hold_until_us, DROP COLUMN source_node, DROP COLUMN destination_node,"
        " DROP COLUMN ended_at_us, DROP COLUMN service_reason, DROP COLUMN history, DROP COLUMN rank,"
        " DROP COLUMN lacking, DROP COLUMN tags, DROP COLUMN words"
    )
