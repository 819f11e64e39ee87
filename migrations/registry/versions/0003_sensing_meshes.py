"""Meshes, and which sensing configurations are made of them.

Only adds: the version before goes on working beside the new one.
"""

from alembic import op

revision = "registry_0003"
down_revision = "registry_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, shaped as those of the other kinds; mark configurations."""
    op.execute(
        "CREATE TABLE sensing_mesh (id text PRIMARY KEY, revision bigint NOT NULL, body jsonb NOT NULL,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    op.execute("ALTER TABLE sensing_configuration ADD COLUMN mesh text NOT NULL DEFAULT ''")
    op.execute("CREATE INDEX sensing_configuration_mesh ON sensing_configuration (mesh) WHERE mesh <> ''")


def downgrade() -> None:
    """Drop them; the configurations of meshes go as well."""
    op.execute("DELETE FROM sensing_configuration WHERE mesh <> ''")
    op.execute("ALTER TABLE sensing_configuration DROP COLUMN mesh")
    op.execute("DROP TABLE sensing_mesh")
