"""What reservations decides: pure functions over plain data, without a database, streams or a clock."""
