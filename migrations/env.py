"""Alembic's environment for every service: one schema, one version table in it, one transaction per migration.

Run through `chart.common.migrate.upgrade`, which hands over the connection (role and search path set) and the schema.
"""

from alembic import context

connection = context.config.attributes["connection"]
schema = context.config.attributes["schema"]

context.configure(
    connection=connection,
    target_metadata=None,
    version_table="alembic_version",
    version_table_schema=schema,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
