"""What operators do to an installation: backup, restore, rehearsals, migrations, the set-up of Vault."""
