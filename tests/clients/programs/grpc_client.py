"""Calls /test.Echo/Who at an xds:/// target. Reads commands from standard input: `call N [KEY=VALUE]` makes N calls with that
metadata and prints one line of JSON {answer: count}; a failed call counts under `error: STATUS`. `try N` makes calls that do
not wait for a channel that is not ready. With `tls` as the second argument the connection is as secure as xDS says."""
import json
import sys

import grpc
import grpc.experimental

if sys.argv[2:] == ["tls"]:
    insecure = grpc.experimental.insecure_channel_credentials()
    channel = grpc.secure_channel(sys.argv[1], grpc.xds_channel_credentials(insecure))
else:
    channel = grpc.insecure_channel(sys.argv[1])
who = channel.unary_unary("/test.Echo/Who")
for line in sys.stdin:
    words = line.split()
    metadata = [tuple(pair.split("=", 1)) for pair in words[2:]]
    counts = {}
    for _ in range(int(words[1])):
        try:
            answer = who(b"", metadata=metadata, timeout=20, wait_for_ready=words[0] == "call").decode()
        except grpc.RpcError as error:
            answer = f"error: {error.code().name}: {error.details()}"
        counts[answer] = counts.get(answer, 0) + 1
    print(json.dumps(counts), flush=True)
