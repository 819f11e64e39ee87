"""Shapes of the REST interface. JSON is snake_case, rates are integers in bit/s, times RFC 3339 in UTC."""
