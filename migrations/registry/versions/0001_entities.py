"""What operators state: nodes, links, policies, sensing configurations; outbox and audit."""

from alembic import op

from chart.common.migrate import common_tables, drop_common_tables

revision = "registry_0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = ("node", "link", "policy", "sensing_configuration")


def upgrade() -> None:
    """Create the tables. `body` is the protobuf message as JSON; the columns beside it are those that rules need."""
    common_tables(op)
    op.execute(
        "CREATE TABLE node (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute(
        "CREATE TABLE link (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " from_node text NOT NULL REFERENCES node (id), to_node text NOT NULL REFERENCES node (id),"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("CREATE INDEX link_from_node ON link (from_node)")
    op.execute("CREATE INDEX link_to_node ON link (to_node)")
    op.execute(
        "CREATE TABLE policy (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute(
        "CREATE TABLE sensing_configuration (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " source_node text NOT NULL, updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("CREATE INDEX sensing_configuration_source_node ON sensing_configuration (source_node)")
    # Revisions come from one sequence, so that an entity made anew never repeats a revision it had before.
    op.execute("CREATE SEQUENCE revision")


def downgrade() -> None:
    """Drop the tables."""
    op.execute("DROP TABLE sensing_configuration, policy, link, node")
    op.execute("DROP SEQUENCE revision")
    drop_common_tables(op)
