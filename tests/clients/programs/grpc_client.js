// Calls /test.Echo/Who at an xds:/// target, as grpc_client.py does; no call waits for a channel. The first argument is the folder with
// node_modules.
const { createRequire } = require("module");
const readline = require("readline");
const load = createRequire(process.argv[2] + "/");
const grpc = load("@grpc/grpc-js");
const xds = load("@grpc/grpc-js-xds");
xds.register();

const bytes = (b) => b;
const Client = grpc.makeGenericClientConstructor(
  { who: { path: "/test.Echo/Who", requestStream: false, responseStream: false, requestSerialize: bytes,
           requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes } }, "test.Echo");
const insecure = grpc.credentials.createInsecure();
const client = new Client(process.argv[3], process.argv[4] === "tls" ? new xds.XdsChannelCredentials(insecure) : insecure);

function call(metadata) {
  return new Promise((resolve) => {
    const deadline = Date.now() + 20000;
    client.who(Buffer.alloc(0), metadata, { deadline }, (error, answer) =>
      resolve(error ? `error: ${error.message}` : answer.toString()));
  });
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const words = line.split(/\s+/);
    const metadata = new grpc.Metadata();
    for (const pair of words.slice(2).filter(Boolean)) {
      const at = pair.indexOf("=");
      metadata.set(pair.slice(0, at), pair.slice(at + 1));
    }
    const counts = {};
    for (let i = 0; i < Number(words[1]); i++) {
      const answer = await call(metadata);
      counts[answer] = (counts[answer] || 0) + 1;
    }
    console.log(JSON.stringify(counts));
  }
  process.exit(0);
})();
