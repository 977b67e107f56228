#!/usr/bin/env bash
# Takes every figure of README.md's table from a running server, with `judge` as the load.
#
#   judge.sh PILOTHOUSE JUDGE OUT [ROW…]     rows: cold change large first slow memory
#
# Raw reports go to OUT; what matters of them is printed, a line per phase.
set -euo pipefail
binary=$(realpath "${1:?the pilothouse binary}") judge=$(realpath "${2:?the judge binary}") out=${3:?a folder for raw reports}
shift 3
rows=${*:-cold change large first slow memory}
work=$(mktemp -d)
grpc=127.0.0.1:26010 http=127.0.0.1:26080 monitoring=127.0.0.1:26014
pid=
mkdir -p "$out"
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT

cat >"$work/start" <<START
#!/usr/bin/env bash
"$binary" serve --config-dir "\$1" --grpc-addr $grpc --http-addr $http --monitoring-addr $monitoring --log-level warn >/dev/null 2>&1 &
echo \$! | tee "$work/pid"
START
chmod +x "$work/start"

tree() { # a fresh tree of $1 services
    rm -rf "$work/tree"
    "$judge" gen --services "$1" --endpoints 2 --out "$work/tree" >/dev/null
    # A file that was just written is read again at the next look.
    find "$work/tree" -type f -exec touch -d '1 minute ago' {} +
}

up() {
    tree "$1"
    pid=$("$work/start" "$work/tree")
    until curl -fs "http://$http/ready" >/dev/null; do sleep 0.05; done
}

down() {
    kill "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    pid=
}

load() { # a named run of judge
    local name=$1
    shift
    "$judge" load --addr $grpc "$@" --out "$out/$name.json" >/dev/null 2>"$out/$name.err"
    python3 - "$name" "$out/$name.json" <<'REPORT'
import json, re, statistics, sys
name, path = sys.argv[1:]
groups = {}
for phase in json.load(open(path))["phases"]:
    groups.setdefault(re.sub(r" \d+$", "", phase["name"]), []).append(phase)
for kind, phases in groups.items():
    of = lambda get: statistics.median(get(p) for p in phases)
    print(f"{name:22} {kind:10} n={len(phases):<3} p50 {of(lambda p: p['done']['p50_ms']):8.1f} ms"
          f"  p99 {of(lambda p: p['done']['p99_ms']):8.1f} ms  last {of(lambda p: p['done']['last_ms']):8.1f} ms"
          f"  CPU {of(lambda p: p['server_cpu_s']):6.3f} s  bytes {of(lambda p: p['bytes']):13,.0f}"
          f"  RSS {of(lambda p: p['server']['rss_mb']):6.1f}  peak {max(p['server']['peak_rss_mb'] for p in phases):6.1f} MB"
          f"  judge's own CPU {of(lambda p: p['own_cpu_s']):.2f} s")
REPORT
}

thousand=(--clients 1000 --namespaces 10 --labels 100)
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
for row in $rows; do
    case $row in
    cold)
        for services in 100 1000 10000; do
            tree $services
            for run in 1 2 3 4 5; do
                load cold-$services-$run --clients 1 --start "$work/start $work/tree" --backoff 5ms --backoff-max 10ms
                pid=$(cat "$work/pid")
                down
            done
        done
        ;;
    change)
        for mode in sotw delta; do
            up 1000
            flag=$([ $mode = delta ] && echo --delta || true)
            load change-1000-$mode "${thousand[@]}" $flag --pid "$pid" --touch "endpoint,weight,service,noop@$work/tree" --rounds 5
            down
        done
        ;;
    large)
        up 10000
        load change-10000-delta --clients 1 --delta --pid "$pid" --touch "endpoint,weight,service,noop@$work/tree" --rounds 5
        down
        ;;
    first)
        for mode in sotw delta; do
            up 1000
            flag=$([ $mode = delta ] && echo --delta || true)
            load first-1000-$mode "${thousand[@]}" $flag --pid "$pid" --reconnect 3
            down
        done
        ;;
    slow)
        for kind in none slow stuck; do
            up 1000
            flag=$([ $kind = none ] || echo "--$kind 30")
            # shellcheck disable=SC2086
            load readers-$kind --clients 100 $flag --pid "$pid" --touch "weight@$work/tree" --rounds 20
            down
        done
        ;;
    memory)
        for services in 100 1000; do
            for clients in 100 1000; do
                up $services
                load idle-$services-$clients --clients $clients --namespaces 10 --labels 100 --pid "$pid" --hold 12s
                down
            done
        done
        ;;
    esac
done
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
