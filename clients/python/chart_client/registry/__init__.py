"""What operators state, as a file: read it, compare it with what is stated, make the difference go away."""
