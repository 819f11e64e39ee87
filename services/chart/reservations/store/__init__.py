"""What reservations keeps: every statement of SQL, and rows as plain data. Imports decisions, never edges."""
