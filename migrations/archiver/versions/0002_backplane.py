"""Backplane: roll-ups, baselines and changes of paths, snapshots, alert rules and alerts; outbox."""

from alembic import op

from chart.common.migrate import has_timescaledb

revision = "archiver_0002"
down_revision = "archiver_0001"
branch_labels = None
depends_on = None

_VALUES = (
    "source text NOT NULL, destination text NOT NULL, metric text NOT NULL, at timestamptz NOT NULL,"
    " unit text NOT NULL, count integer NOT NULL, failed integer NOT NULL, mean double precision,"
    " p50 double precision, p95 double precision, p99 double precision, minimum double precision,"
    " maximum double precision, probes_sent bigint NOT NULL, probes_lost bigint NOT NULL,"
    " PRIMARY KEY (source, destination, metric, at)"
)
ROLLUPS = ("rollup_minute", "rollup_hour")
OTHERS = (
    "alert",
    "alert_rule",
    "snapshot_row",
    "snapshot",
    "latest_estimate",
    "path_change",
    "baseline",
    "rollup_pending",
    "outbox",
)


def upgrade() -> None:
    """Create the tables. The audit table of `common_tables` is not made: the archiver's own audit table is history."""
    timescale = has_timescaledb(op.get_bind())
    for table in ROLLUPS:
        op.execute(f"CREATE TABLE {table} ({_VALUES}){'' if timescale else ' PARTITION BY RANGE (at)'}")
        if timescale:
            op.execute(f"SELECT create_hypertable('{table}', 'at', chunk_time_interval => INTERVAL '1 day')")
        op.execute(f"CREATE INDEX {table}_at ON {table} (at)")
    # Minutes and hours whose roll-up is out of date; written in the transaction of the measurements.
    op.execute(
        "CREATE TABLE rollup_pending (resolution text NOT NULL, source text NOT NULL, destination text NOT NULL,"
        " metric text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (resolution, source, destination, metric, at))"
    )
    op.execute(
        "CREATE TABLE baseline (source text, destination text, metric text, unit text NOT NULL,"
        " median double precision NOT NULL, spread double precision NOT NULL, minutes integer NOT NULL,"
        " since timestamptz NOT NULL, computed_at timestamptz NOT NULL, PRIMARY KEY (source, destination, metric))"
    )
    op.execute(
        "CREATE TABLE path_change (source text, destination text, metric text, at timestamptz, unit text NOT NULL,"
        " before double precision NOT NULL, after double precision NOT NULL, found_at timestamptz NOT NULL,"
        " PRIMARY KEY (source, destination, metric, at))"
    )
    op.execute("CREATE INDEX path_change_at ON path_change (at)")
    op.execute(
        "CREATE TABLE snapshot (id text PRIMARY KEY, taken_at timestamptz NOT NULL, reason text NOT NULL,"
        " metrics text[] NOT NULL, nodes integer NOT NULL, rows integer NOT NULL)"
    )
    op.execute("CREATE INDEX snapshot_taken_at ON snapshot (taken_at)")
    # What stands in chart.estimate.v1 now; the table `estimate` is its history.
    op.execute(
        "CREATE TABLE latest_estimate (source text, destination text, metric text, value double precision NOT NULL,"
        " unit text NOT NULL, method text NOT NULL, interval_low double precision NOT NULL,"
        " interval_high double precision NOT NULL, estimated_at timestamptz NOT NULL,"
        " PRIMARY KEY (source, destination, metric))"
    )
    op.execute(
        "CREATE TABLE snapshot_row (snapshot_id text REFERENCES snapshot (id) ON DELETE CASCADE,"
        " source text, destination text, metric text, value double precision NOT NULL, unit text NOT NULL,"
        " method text NOT NULL, interval_low double precision, interval_high double precision,"
        " at timestamptz NOT NULL, PRIMARY KEY (snapshot_id, source, destination, metric))"
    )
    op.execute(
        "CREATE TABLE alert_rule (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("CREATE SEQUENCE revision")
    # `holds_since` is when the condition began to hold, `fired_at` when it had held long enough.
    op.execute(
        "CREATE TABLE alert (id text PRIMARY KEY, rule text NOT NULL, subject text NOT NULL, summary text NOT NULL,"
        " value double precision NOT NULL, threshold double precision NOT NULL, holds_since timestamptz NOT NULL,"
        " fired_at timestamptz, resolved_at timestamptz)"
    )
    op.execute("CREATE UNIQUE INDEX alert_open ON alert (rule, subject) WHERE resolved_at IS NULL")
    op.execute("CREATE INDEX alert_fired_at ON alert (fired_at)")
    op.execute(
        "CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text NOT NULL, key text NOT NULL, payload bytea,"
        " headers jsonb NOT NULL DEFAULT '{}', created_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        " published_at timestamptz)"
    )
    op.execute("CREATE INDEX outbox_waiting ON outbox (id) WHERE published_at IS NULL")
    op.execute("CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL")


def downgrade() -> None:
    """Drop the tables."""
    for table in (*OTHERS, *ROLLUPS):
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP SEQUENCE revision")
