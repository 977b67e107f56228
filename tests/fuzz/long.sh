#!/usr/bin/env bash
# Runs targets under libFuzzer, one after the other: long.sh SECONDS [TARGET...], all targets without names.
# New inputs go to target/fuzz-corpus, findings to target/fuzz-findings, a line of figures for each target to standard output.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?long.sh SECONDS [TARGET...]}
shift
host=$(rustc -vV | sed -n 's/^host: //p')
binary=target/fuzz/$host/release/fuzz
if [ -z "${PILOTHOUSE_FUZZ_BUILT:-}" ]; then
  flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
  for flag in inline-8bit-counters pc-table trace-compares; do flags+=" -Cllvm-args=-sanitizer-coverage-$flag"; done
  # With --target the flags are for the targets and what they use, not for build scripts.
  RUSTFLAGS="$flags" cargo build --release --manifest-path tests/fuzz/Cargo.toml --target "$host" --target-dir target/fuzz
fi
[ $# -gt 0 ] || set -- $(cd tests/fuzz/corpus && ls)
for target; do
  new=target/fuzz-corpus/$target
  found=target/fuzz-findings/$target
  mkdir -p "$new" "$found"
  log=target/fuzz-corpus/$target.log
  state=ok
  PILOTHOUSE_FUZZ=$target "$binary" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -use_value_profile=1 \
    -print_final_stats=1 -artifact_prefix="$found/" "$new" "tests/fuzz/corpus/$target" >"$log" 2>&1 || state=FINDING
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  cover=$(grep -o ' cov: [0-9]*' "$log" | tail -1 | grep -o '[0-9]*' || true)
  memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
  echo "$target: $state, ${runs:-0} runs, ${cover:-0} edges, peak ${memory:-?} MB"
done
