"""What connects decisions and store with calls, streams and clocks, beside rpc.py and streams.py."""
