"""The overlay: what happened to its links and paths, and each node's path table."""

from alembic import op

from chart.common.migrate import has_timescaledb

revision = "archiver_0005"
down_revision = "archiver_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; the running version does not see them."""
    timescale = has_timescaledb(op.get_bind())
    partitioning = "" if timescale else " PARTITION BY RANGE (at)"
    op.execute(
        "CREATE TABLE overlay_event (node text NOT NULL, agent_instance text NOT NULL, sequence numeric NOT NULL,"
        " at timestamptz NOT NULL, kind text NOT NULL, link_id text NOT NULL, owner text NOT NULL,"
        " colour integer NOT NULL, flow_classes text[] NOT NULL, rtt_ms double precision NOT NULL,"
        " exchange_loss double precision NOT NULL, interface_down boolean NOT NULL,"
        f" PRIMARY KEY (node, agent_instance, sequence, at)){partitioning}"
    )
    if timescale:
        op.execute("SELECT create_hypertable('overlay_event', 'at', chunk_time_interval => INTERVAL '1 day')")
    op.execute("CREATE INDEX overlay_event_series ON overlay_event (node, at)")
    # One table by which packets went may stand for years, so it is not dropped with its day.
    op.execute(
        "CREATE TABLE path_table (node text NOT NULL, at timestamptz NOT NULL, stream_offset bigint NOT NULL,"
        " generation numeric NOT NULL, content bytea NOT NULL, PRIMARY KEY (node, at, stream_offset))"
    )


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP TABLE path_table")
    op.execute("DROP TABLE overlay_event")
