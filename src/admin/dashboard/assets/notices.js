// Notices of changes: the stream of the server, held by one shared worker for all pages of a browser, since a browser opens no more
// than six connections to a server without TLS. Where there are no shared workers each page holds a stream.

const CHANNEL = "pilothouse-notices";

// Tells the state of the stream, and each notice.
export function stream(told) {
  const source = new EventSource("/dashboard/events");
  source.onopen = () => told({ connected: true });
  source.onmessage = (event) => told({ connected: true, notice: JSON.parse(event.data) });
  source.onerror = () => {
    told({ connected: false });
    if (source.readyState === EventSource.CLOSED) setTimeout(() => stream(told), 3000);
  };
}

// The worker's side: what a page that comes later has missed is told to it alone.
export function share(scope) {
  const channel = new BroadcastChannel(CHANNEL);
  let last = null;
  stream((told) => {
    last = { ...last, ...told };
    channel.postMessage(told);
  });
  scope.onconnect = (event) => last && event.ports[0].postMessage(last);
}

// The page's side.
export function follow(told) {
  if (typeof SharedWorker === "undefined") {
    stream(told);
    return;
  }
  const channel = new BroadcastChannel(CHANNEL);
  const worker = new SharedWorker("/dashboard/assets/worker.js", { type: "module", name: CHANNEL });
  const hear = (event) => told(event.data);
  channel.onmessage = hear;
  worker.port.onmessage = hear;
  worker.onerror = () => {
    channel.close();
    worker.port.close();
    stream(told);
  };
}
