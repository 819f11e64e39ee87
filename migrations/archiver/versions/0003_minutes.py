"""Minutes of link loads; compression.

With the community features of TimescaleDB the minutes are a continuous aggregate and old chunks are compressed by
policies. Without them (plain PostgreSQL, or the extension's Apache edition) they are a table that the archiver fills,
and a view of the same name computes what is not in it yet. Either way questions ask `link_minute`.
"""

from alembic import op

from chart.common.migrate import has_timescale_policies, has_timescaledb

revision = "archiver_0003"
down_revision = "archiver_0002"
branch_labels = None
depends_on = None

# Column of the seconds: (its greatest of 100 ms, name of the least).
_LOADS = {
    "sent_bps": ("sent_max_bps", "sent_min_bps"),
    "explicit_rate_bps": ("explicit_rate_max_bps", "explicit_rate_min_bps"),
    "legacy_bps": ("legacy_max_bps", "legacy_min_bps"),
    "queue_bytes": ("queue_max_bytes", "queue_min_bytes"),
    "dropped_packets": ("dropped_packets", "dropped_min_packets"),
}
_MEANS = ", ".join(
    f"sum({mean} * samples)::double precision / sum(samples) AS {mean}, min({mean})::double precision AS {low},"
    f" max({high})::double precision AS {high if high != mean else 'dropped_max_packets'}"
    for mean, (high, low) in _LOADS.items()
)
AGGREGATES = f"sum(samples)::bigint AS samples, {_MEANS}"
_COLUMNS = "samples bigint NOT NULL, " + ", ".join(
    f"{name} double precision NOT NULL"
    for mean, (high, low) in _LOADS.items()
    for name in (mean, low, high if high != mean else "dropped_max_packets")
)
# Table: (what rows of a series have in common, order within, days until a chunk is compressed).
COMPRESSED = {
    "measurement": ("source, destination, metric", "measured_at, id", 7),
    "estimate": ("source, destination, metric", "estimated_at", 7),
    "link_load": ("link_id", "at", 2),
    "link_rate": ("link_id", "issued_at", 2),
    "grant_status": ("request_id", "at, node, stream_offset", 7),
    "flow_grant": ("request_id", "at, stream_offset", 7),
    "audit": ("service", "at, id", 30),
}


def upgrade() -> None:
    """Add the minutes of what is there, too; the running version neither sees nor minds them."""
    if has_timescale_policies(op.get_bind()):
        _continuous()
    else:
        _stored()


def _continuous() -> None:
    op.execute(
        "CREATE MATERIALIZED VIEW link_minute"  # noqa: S608 - names of this file
        " WITH (timescaledb.continuous, timescaledb.materialized_only = false) AS"
        f" SELECT link_id, time_bucket(INTERVAL '1 minute', at) AS at, {AGGREGATES} FROM link_load"
        " WHERE samples > 0 GROUP BY 1, 2 WITH NO DATA"
    )
    # Loads older than a day are never written (their stream keeps an hour), and chunks live for a day at least.
    op.execute(
        "SELECT add_continuous_aggregate_policy('link_minute', start_offset => INTERVAL '1 day',"
        " end_offset => INTERVAL '2 minutes', schedule_interval => INTERVAL '1 minute')"
    )
    for table, (segment, order, days) in COMPRESSED.items():
        op.execute(
            f"ALTER TABLE {table} SET (timescaledb.compress, timescaledb.compress_segmentby = '{segment}',"
            f" timescaledb.compress_orderby = '{order}')"
        )
        op.execute(f"SELECT add_compression_policy('{table}', INTERVAL '{days} days')")


def _stored() -> None:
    hypertable = has_timescaledb(op.get_bind())
    partitioning = "" if hypertable else " PARTITION BY RANGE (at)"
    op.execute(
        f"CREATE TABLE link_minute_stored (link_id text NOT NULL, at timestamptz NOT NULL, {_COLUMNS},"
        f" PRIMARY KEY (link_id, at)){partitioning}"
    )
    if hypertable:
        op.execute("SELECT create_hypertable('link_minute_stored', 'at', chunk_time_interval => INTERVAL '1 day')")
    # Minutes that are not stored, or not as they are now; written in the transaction of the loads.
    op.execute(
        "CREATE TABLE link_minute_pending (link_id text NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (link_id, at))"
    )
    op.execute("CREATE INDEX link_minute_pending_at ON link_minute_pending (at)")
    op.execute(
        "CREATE VIEW link_minute AS SELECT s.* FROM link_minute_stored s WHERE NOT EXISTS"  # noqa: S608 - names of this file
        " (SELECT 1 FROM link_minute_pending p WHERE p.link_id = s.link_id AND p.at = s.at)"
        f" UNION ALL SELECT l.link_id, p.at, {AGGREGATES} FROM link_minute_pending p JOIN link_load l"
        " ON l.link_id = p.link_id AND l.at >= p.at AND l.at < p.at + INTERVAL '1 minute' AND l.samples > 0"
        " GROUP BY l.link_id, p.at"
    )
    op.execute(
        "INSERT INTO link_minute_pending SELECT DISTINCT link_id, date_bin(INTERVAL '1 minute', at, 'epoch')"
        " FROM link_load"
    )


def downgrade() -> None:
    """Drop the minutes, and compression where there is some."""
    if has_timescale_policies(op.get_bind()):
        op.execute("DROP MATERIALIZED VIEW link_minute")
        for table in COMPRESSED:
            op.execute(f"SELECT remove_compression_policy('{table}', if_exists => true)")
            op.execute(f"SELECT decompress_chunk(c, true) FROM show_chunks('{table}') c")  # noqa: S608
            op.execute(f"ALTER TABLE {table} SET (timescaledb.compress = false)")
        return
    op.execute("DROP VIEW link_minute")
    op.execute("DROP TABLE link_minute_pending")
    op.execute("DROP TABLE link_minute_stored")
