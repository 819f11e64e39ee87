"""What tests of several services need: a real broker and a real database on loopback, and waiting without sleeping."""
