#!/usr/bin/env python3
"""Takes the figures of a Kubernetes API server as a source, beside those of a folder that holds the same objects.

    kubernetes.py PILOTHOUSE APISERVER JUDGE CRDS [--objects 10000] [--proxies 1000] [--rounds 5] [--rows cold,idle,...]

PILOTHOUSE is the binary under test, APISERVER the test API server (the tests build it into target/kube-apiserver), JUDGE the
load generator, CRDS a YAML file of Istio's CRDs. Rows: cold, held, idle, change, snapshot. One line of result for each.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

GRPC, HTTP = "127.0.0.1:26110", "127.0.0.1:26180"
TICK = os.sysconf("SC_CLK_TCK")


def entry(number):
    """A ServiceEntry of two endpoints."""
    address = f"10.80.{number // 250}.{number % 250 + 1}"
    return {
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": f"s{number}", "namespace": f"ns{number % 10}"},
        "spec": {
            "hosts": [f"s{number}.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
            "endpoints": [{"address": address, "labels": {"version": "v1"}}, {"address": f"10.90.{number // 250}.{number % 250 + 1}"}],
        },
    }


class ApiServer:
    """The test API server on a folder of its own."""

    def __init__(self, binary, folder):
        self.process = subprocess.Popen(
            [binary, "-dir", folder, "-listen", "127.0.0.1:0", "-exit-with-stdin"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.kubeconfig, self.url = ready["kubeconfig"], urllib.parse.urlparse(ready["url"])
        text = pathlib.Path(self.kubeconfig).read_text()
        self.token = re.search(r"token: (\w+)", text)[1]
        ca = base64.b64decode(re.search(r"certificate-authority-data: ([\w+/=]+)", text)[1]).decode()
        self.tls = ssl.create_default_context(cadata=ca)
        self.local = threading.local()

    def ask(self, method, path, body, kind="application/json"):
        for attempt in (1, 2):
            if not hasattr(self.local, "connection"):
                self.local.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.tls)
            try:
                self.local.connection.request(
                    method, path, body, {"Content-Type": kind, "Authorization": f"Bearer {self.token}"})
                answer = self.local.connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError):
                del self.local.connection
                if attempt == 2:
                    raise

    def create(self, path, document, kind="application/json"):
        status, text = self.ask("POST", path, document, kind)
        if status not in (200, 201, 409):
            sys.exit(f"{path}: {status} {text[:300]}")

    def fill(self, crds, objects):
        for text in re.split(r"(?m)^---\s*$", pathlib.Path(crds).read_text()):
            if "kind: CustomResourceDefinition" in text:
                self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text, "application/yaml")
        for number in range(10):
            name = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns{number}"}})
            self.create("/api/v1/namespaces", name)
        while self.ask("GET", "/apis/networking.istio.io/v1/serviceentries?limit=1", None)[0] != 200:
            time.sleep(0.1)
        numbers = iter(range(objects))
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                document = json.dumps(entry(number))
                self.create(f"/apis/networking.istio.io/v1/namespaces/ns{number % 10}/serviceentries", document)

        threads = [threading.Thread(target=work) for _ in range(16)]
        [t.start() for t in threads]
        [t.join() for t in threads]

    def stop(self):
        self.process.kill()
        self.process.wait()


class Pilothouse:
    """The process under test, ready."""

    def __init__(self, binary, *arguments):
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [binary, "serve", "--grpc-addr", GRPC, "--http-addr", HTTP, "--monitoring-addr", "", "--log-level", "error", *arguments])
        while True:
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection(HTTP, timeout=5)
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    break
            if self.process.poll() is not None:
                sys.exit("pilothouse ended")
            time.sleep(0.005)
        self.ready_s = time.monotonic() - self.began
        self.ready_cpu_s = self.cpu()

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss_kb(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def running(*arguments):
    process = Pilothouse(*arguments)
    try:
        yield process
    finally:
        process.stop()


def load(judge, process, *arguments):
    """Phases of a run of judge."""
    report = subprocess.run(
        [judge, "load", "--addr", GRPC, "--pid", str(process.process.pid), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(report.stdout)["phases"]


def cold(o, name, *source):
    """From the start of the process to the first proxy's full config."""
    rows = []
    for _ in range(o.rounds):
        with running(o.pilothouse, *source) as process:
            first = load(o.judge, process, "--clients", "1", "--quiet", "200ms")[0]["done"]["last_ms"] / 1000
            rows.append((process.ready_s, process.ready_s + first, process.cpu(), process.rss_kb() / 1024))
    ready, full, cpu, rss = (statistics.median(column) for column in zip(*rows))
    print(f"cold {name:8} ready {ready:.2f} s, full config {full:.2f} s, {cpu:.2f} CPU-s, {rss:.0f} MB", flush=True)


def held(o, work, kubeconfig):
    """What the source alone holds of an object: no namespace is discovered, so nothing is handed over."""
    mesh = work / "nothing.yaml"
    mesh.write_text("discoverySelectors: [{matchLabels: {nobody: has-this}}]\n")
    sizes = []
    for more in ([], ["--watch-namespace", "nowhere"]):
        with running(o.pilothouse, "--kubeconfig", kubeconfig, "--mesh-config", str(mesh), *more) as process:
            time.sleep(3)
            sizes.append(process.rss_kb())
    print(f"held: {(sizes[0] - sizes[1]) * 1024 / o.objects:.0f} bytes per object "
          f"({sizes[0] / 1024:.1f} MB with them, {sizes[1] / 1024:.1f} MB without)", flush=True)


def idle(o, kubeconfig):
    with running(o.pilothouse, "--kubeconfig", kubeconfig) as process:
        time.sleep(10)
        before = process.cpu()
        time.sleep(60)
        print(f"idle: {process.cpu() - before:.2f} CPU-s in 60 s, all objects watched", flush=True)


def change(o, name, source, trigger):
    with running(o.pilothouse, *source) as process:
        phases = load(
            o.judge, process, "--clients", str(o.proxies), "--namespaces", "10", "--labels", "100", "--delta",
            "--trigger", trigger, "--marker", "region-{n}", "--rounds", str(o.rounds), "--quiet", "1s")
    changes = [p for p in phases if p["name"].startswith("change")]
    if any(p["missing"] for p in changes):
        sys.exit(f"change {name}: proxies were not told")
    median = lambda get: statistics.median(get(p) for p in changes)
    print(f"change {name:8} last of {o.proxies} proxies {median(lambda p: p['done']['last_ms']):.0f} ms, "
          f"{median(lambda p: p['server_cpu_s']):.3f} CPU-s, the change itself {median(lambda p: p['trigger_ms']):.0f} ms", flush=True)


def snapshot(o, work, server):
    """A start from the folder of last good content, with the API server gone."""
    state = work / "state"
    arguments = ["--kubeconfig", server.kubeconfig, "--state-dir", str(state), "--state-grace"]
    with running(o.pilothouse, *arguments, "60s"):
        while not any(f.stat().st_size > o.objects * 100 for f in state.glob("*.last-good")):
            time.sleep(0.1)
        time.sleep(12)
    server.stop()
    rows = []
    for _ in range(o.rounds):
        with running(o.pilothouse, *arguments, "0s") as process:
            rows.append((process.ready_s, process.ready_cpu_s))
    ready, cpu = (statistics.median(column) for column in zip(*rows))
    size = sum(f.stat().st_size for f in state.glob("*.last-good")) / 1e6
    print(f"snapshot: ready after {ready:.2f} s, {cpu:.2f} CPU-s, from {size:.1f} MB on disk", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("pilothouse", "apiserver", "judge", "crds"):
        parser.add_argument(name)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--proxies", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="cold,held,idle,change,snapshot")
    o = parser.parse_args()
    rows = o.rows.split(",")
    work = pathlib.Path(tempfile.mkdtemp(prefix="pilothouse-bench-"))
    folder = work / "folder"
    folder.mkdir()
    for first in range(0, o.objects, 500):
        documents = (json.dumps(entry(n)) for n in range(first, min(first + 500, o.objects)))
        (folder / f"{first}.yaml").write_text("---\n" + "\n---\n".join(documents) + "\n")
    # A file that was just written is read again at the next look.
    old = time.time() - 60
    [os.utime(f, (old, old)) for f in folder.iterdir()]
    server = ApiServer(o.apiserver, str(work / "cluster"))
    try:
        server.fill(o.crds, o.objects)
        if "cold" in rows:
            cold(o, "folder", "--config-dir", str(folder))
            cold(o, "cluster", "--kubeconfig", server.kubeconfig)
        if "held" in rows:
            held(o, work, server.kubeconfig)
        if "idle" in rows:
            idle(o, server.kubeconfig)
        if "change" in rows:
            # An endpoint of one object moves to another region, in its file and in the cluster.
            touch = folder / "touch.yaml"
            script = work / "touch.py"
            script.write_text(
                "import json, os, ssl, sys, urllib.request\n"
                f"document = {entry(1)!r}\n"
                "document['spec']['endpoints'][0]['locality'] = f'region-{sys.argv[2]}/a'\n"
                "text = json.dumps(document)\n"
                "if sys.argv[1] == 'folder':\n"
                f"    open('{touch}.new', 'w').write(text)\n"
                f"    os.rename('{touch}.new', '{touch}')\n"
                "else:\n"
                f"    url = '{server.url.geturl()}/apis/networking.istio.io/v1/namespaces/ns1/serviceentries/s1'\n"
                f"    headers = {{'Content-Type': 'application/merge-patch+json', 'Authorization': 'Bearer {server.token}'}}\n"
                "    request = urllib.request.Request(url, text.encode(), headers, method='PATCH')\n"
                "    urllib.request.urlopen(request, context=ssl._create_unverified_context()).read()\n")
            # In the folder the object lies in a file of its own.
            first = folder / "0.yaml"
            first.write_text("---\n" + "\n---\n".join(json.dumps(entry(n)) for n in range(min(500, o.objects)) if n != 1) + "\n")
            touch.write_text(json.dumps(entry(1)))
            change(o, "folder", ["--config-dir", str(folder)], f"{sys.executable} {script} folder {{n}}")
            change(o, "cluster", ["--kubeconfig", server.kubeconfig], f"{sys.executable} {script} cluster {{n}}")
        if "snapshot" in rows:
            snapshot(o, work, server)
    finally:
        server.stop()
        shutil.rmtree(work, ignore_errors=True)


main()
