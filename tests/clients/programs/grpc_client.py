"""Calls /test.Echo/Who at an xds:/// target. Reads commands from standard input: `call N [KEY=VALUE]` makes N calls with that
metadata and prints one line of JSON {answer: count}; a failed call counts under `error: STATUS`."""
import json
import sys

import grpc

channel = grpc.insecure_channel(sys.argv[1])
who = channel.unary_unary("/test.Echo/Who")
for line in sys.stdin:
    words = line.split()
    metadata = [tuple(pair.split("=", 1)) for pair in words[2:]]
    counts = {}
    for _ in range(int(words[1])):
        try:
            answer = who(b"", metadata=metadata, timeout=20, wait_for_ready=True).decode()
        except grpc.RpcError as error:
            answer = f"error: {error.code().name}: {error.details()}"
        counts[answer] = counts.get(answer, 0) + 1
    print(json.dumps(counts), flush=True)
