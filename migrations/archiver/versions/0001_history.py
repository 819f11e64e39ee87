"""History: measurements, estimates, loads and rates of links, grants, audit.

Every large table is partitioned by time (range partitions by day, which the service creates ahead and drops by
retention); where the timescaledb extension is there it is a hypertable instead.
"""

from alembic import op

from chart.common.migrate import has_timescaledb

revision = "archiver_0001"
down_revision = None
branch_labels = None
depends_on = None

# Table: (time column, columns, primary key). A key names the fact, so that a record delivered again changes nothing.
TABLES = {
    "measurement": (
        "measured_at",
        "id text NOT NULL, measured_at timestamptz NOT NULL, source text NOT NULL, destination text NOT NULL,"
        " sensor text NOT NULL, metric text NOT NULL, value double precision NOT NULL, unit text NOT NULL,"
        " probes_sent bigint NOT NULL, probes_lost bigint NOT NULL, probe_bytes bigint NOT NULL,"
        " configuration_ids text[] NOT NULL, error text NOT NULL",
        "id, measured_at",
    ),
    "estimate": (
        "estimated_at",
        "source text NOT NULL, destination text NOT NULL, metric text NOT NULL, estimated_at timestamptz NOT NULL,"
        " value double precision NOT NULL, unit text NOT NULL, method text NOT NULL,"
        " interval_low double precision NOT NULL, interval_high double precision NOT NULL",
        "source, destination, metric, estimated_at",
    ),
    "link_load": (
        "at",
        "link_id text NOT NULL, at timestamptz NOT NULL, samples integer NOT NULL,"
        " sent_bps double precision NOT NULL, sent_max_bps double precision NOT NULL,"
        " explicit_rate_bps double precision NOT NULL, explicit_rate_max_bps double precision NOT NULL,"
        " legacy_bps double precision NOT NULL, legacy_max_bps double precision NOT NULL,"
        " queue_bytes double precision NOT NULL, queue_max_bytes double precision NOT NULL,"
        " dropped_packets bigint NOT NULL, active_flows_max integer NOT NULL",
        "link_id, at",
    ),
    "link_rate": (
        "issued_at",
        "link_id text NOT NULL, issued_at timestamptz NOT NULL, valid_until timestamptz NOT NULL,"
        " generation numeric NOT NULL, available_bps double precision NOT NULL,"
        " explicit_rate_capacity_bps double precision NOT NULL, legacy_share_bps double precision NOT NULL,"
        " active_flows bigint NOT NULL, controller text NOT NULL",
        "link_id, issued_at",
    ),
    "grant_status": (
        "at",
        "request_id text NOT NULL, node text NOT NULL, at timestamptz NOT NULL, stream_offset bigint NOT NULL,"
        " generation numeric NOT NULL, state text NOT NULL, reason text NOT NULL, applied_at timestamptz,"
        " kernel_rate_bps double precision NOT NULL, matching_flows bigint NOT NULL, sent_bytes numeric NOT NULL,"
        " delivered_bytes numeric NOT NULL",
        "request_id, node, at, stream_offset",
    ),
    "flow_grant": (
        "at",
        "request_id text NOT NULL, at timestamptz NOT NULL, stream_offset bigint NOT NULL, released boolean NOT NULL,"
        " generation numeric NOT NULL, guaranteed_bps double precision NOT NULL, valid_until timestamptz,"
        " link_ids text[] NOT NULL, body jsonb NOT NULL",
        "request_id, at, stream_offset",
    ),
    "audit": (
        "at",
        "id text NOT NULL, at timestamptz NOT NULL, service text NOT NULL, actor text NOT NULL, action text NOT NULL,"
        " subject text NOT NULL, detail jsonb NOT NULL, trace_id text NOT NULL",
        "id, at",
    ),
}

INDEXES = {
    "measurement": "(source, destination, metric, measured_at)",
    "audit": "(subject, at)",
}


def upgrade() -> None:
    """Create the tables, and the newest measurement of each path beside them."""
    timescale = has_timescaledb(op.get_bind())
    for table, (time, columns, key) in TABLES.items():
        partitioning = "" if timescale else f" PARTITION BY RANGE ({time})"
        op.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key})){partitioning}")
        if timescale:
            op.execute(f"SELECT create_hypertable('{table}', '{time}', chunk_time_interval => INTERVAL '1 day')")
        if table in INDEXES:
            op.execute(f"CREATE INDEX {table}_series ON {table} {INDEXES[table]}")
    op.execute(
        "CREATE TABLE latest_measurement (source text, destination text, metric text, id text NOT NULL,"
        " sensor text NOT NULL, value double precision NOT NULL, unit text NOT NULL,"
        " measured_at timestamptz NOT NULL, error text NOT NULL, PRIMARY KEY (source, destination, metric))"
    )


def downgrade() -> None:
    """Drop the tables."""
    op.execute("DROP TABLE latest_measurement")
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
