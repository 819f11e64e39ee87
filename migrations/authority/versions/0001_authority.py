"""Identities, certificates, keys, authorisations, next hops, peers, accounts of receipts; outbox and audit."""

from alembic import op

from chart.common.migrate import common_tables, drop_common_tables

revision = "authority_0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "account_node",
    "account",
    "next_hop",
    "authorisation",
    "authorisation_policy",
    "peer",
    "key_epoch",
    "report",
    "enrolment",
    "certificate",
    "identity",
    "revision",
)


def upgrade() -> None:
    """Create the tables. Moments are microseconds since the epoch; a plain key or token stands in none of them."""
    common_tables(op)
    # One row that every followed change updates: its lock puts commits into the order of their revisions.
    op.execute("CREATE TABLE revision (one boolean PRIMARY KEY DEFAULT true CHECK (one), value bigint NOT NULL,"
               " forgotten bigint NOT NULL)")  # fmt: skip
    op.execute("INSERT INTO revision (value, forgotten) VALUES (1, 0)")
    # Who was ever given a certificate; element_id is the 16-bit sender id of signals.
    op.execute("CREATE TABLE identity (name text PRIMARY KEY, element_id integer UNIQUE CHECK (element_id BETWEEN 1 AND"
               " 65535), active boolean NOT NULL DEFAULT true, revoked_at_us bigint NOT NULL DEFAULT 0,"
               " revision bigint NOT NULL DEFAULT 0)")  # fmt: skip
    op.execute("CREATE TABLE certificate (serial text PRIMARY KEY, identity text NOT NULL REFERENCES identity (name),"
               " issued_at_us bigint NOT NULL, not_after_us bigint NOT NULL, revoked_at_us bigint NOT NULL DEFAULT 0,"
               " revoked_because text NOT NULL DEFAULT '')")  # fmt: skip
    op.execute("CREATE INDEX certificate_identity ON certificate (identity)")
    op.execute("CREATE TABLE enrolment (token_hash bytea PRIMARY KEY, identity text NOT NULL, created_by text NOT NULL,"
               " expires_at_us bigint NOT NULL, used_at_us bigint)")  # fmt: skip
    # Keys of signals (sender, receiver) and of records (sender, ''), wrapped by the key store.
    op.execute("CREATE TABLE key_epoch (sender text NOT NULL, receiver text NOT NULL, generation bigint NOT NULL,"
               " wrapped text NOT NULL, created_at_us bigint NOT NULL, sign_from_us bigint NOT NULL,"
               " renew_at_us bigint NOT NULL, expires_at_us bigint NOT NULL,"
               " PRIMARY KEY (sender, receiver, generation))")  # fmt: skip
    op.execute("CREATE INDEX key_epoch_receiver ON key_epoch (receiver)")
    op.execute("CREATE INDEX key_epoch_expires ON key_epoch (expires_at_us)")
    op.execute("CREATE TABLE authorisation_policy (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL)")
    op.execute("CREATE TABLE authorisation (id text PRIMARY KEY, revision bigint NOT NULL, owner text NOT NULL,"
               " client_address inet NOT NULL, body jsonb NOT NULL, expires_at_us bigint NOT NULL,"
               " removed_at_us bigint)")  # fmt: skip
    op.execute("CREATE INDEX authorisation_revision ON authorisation (revision)")
    op.execute("CREATE INDEX authorisation_owner ON authorisation (owner)")
    op.execute("CREATE TABLE next_hop (element text NOT NULL, prefix cidr NOT NULL, next_element text NOT NULL,"
               " source text NOT NULL, revision bigint NOT NULL, expires_at_us bigint, removed_at_us bigint,"
               " PRIMARY KEY (element, prefix))")  # fmt: skip
    op.execute("CREATE INDEX next_hop_revision ON next_hop (element, revision)")
    # A signal proves a wrong next hop once.
    op.execute("CREATE TABLE report (sender text NOT NULL, receiver text NOT NULL, generation bigint NOT NULL,"
               " sequence bigint NOT NULL, at_us bigint NOT NULL, PRIMARY KEY (sender, receiver, generation, sequence))"
               )  # fmt: skip
    op.execute("CREATE TABLE peer (domain text PRIMARY KEY, revision bigint NOT NULL, url text NOT NULL,"
               " ca_pem text NOT NULL, pairs jsonb NOT NULL)")  # fmt: skip
    # What was granted, and what the agents counted: the substance of receipts.
    op.execute("CREATE TABLE account (request_id text PRIMARY KEY, owner text NOT NULL, body jsonb NOT NULL,"
               " updated_at_us bigint NOT NULL)")  # fmt: skip
    op.execute("CREATE TABLE account_node (request_id text NOT NULL, node text NOT NULL, generation bigint NOT NULL,"
               " sent_bytes bigint NOT NULL, delivered_bytes bigint NOT NULL, updated_at_us bigint NOT NULL,"
               " PRIMARY KEY (request_id, node))")  # fmt: skip


def downgrade() -> None:
    """Drop the tables."""
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    drop_common_tables(op)
