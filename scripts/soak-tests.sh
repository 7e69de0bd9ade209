#!/usr/bin/env bash
# Repeats the tests of make test and counts how often each test failed.
#
#   scripts/soak-tests.sh N [--loaded]     until N runs are done, including those of earlier calls
#   scripts/soak-tests.sh --report         only prints the results so far
#
# --loaded runs four busy loops and a disk writer beside the tests. Every run is a file in build-soak/, named after its
# time and its commit: you can interrupt the script and call it again to continue. Remove build-soak/ to start over.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build-soak
runs=
kind=idle
for word in "$@"; do
	case "$word" in
	--loaded) kind=loaded ;;
	--report) runs=0 ;;
	[1-9]*) runs=$word ;;
	*) runs= && break ;;
	esac
done
if [ -z "$runs" ]; then
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
mkdir -p "$folder"

load_pids=()
start_load() {
	for _ in 1 2 3 4; do
		sh -c 'while :; do :; done' &
		load_pids+=($!)
	done
	scratch=$(mktemp -d)
	sh -c 'while :; do dd if=/dev/zero of="$1/block" bs=1M count=64 conv=fsync 2>/dev/null; done' sh "$scratch" &
	load_pids+=($!)
}
stop_load() {
	[ ${#load_pids[@]} -eq 0 ] || kill "${load_pids[@]}" 2>/dev/null || true
	[ -z "${scratch:-}" ] || rm -rf "$scratch"
	load_pids=()
}
trap stop_load EXIT

report() {
	for which in idle loaded; do
		logs=("$folder/$which"-*.log)
		[ -e "${logs[0]}" ] || continue
		green=$(grep -lE '^[0-9]+ passed, 0 failed' "${logs[@]}" | wc -l)
		echo "$which: ${#logs[@]} runs, $green green"
		for log in "${logs[@]}"; do
			echo "  $(basename "$log"): $(grep -E '^took ' "$log" | tail -1), $(tail -1 "$log")"
		done
	done
	echo "failures by test:"
	cat "$folder"/*.log 2>/dev/null | sed -n 's/^==== FAILED //p' | sort | uniq -c | sort -rn
}

[ "$runs" -eq 0 ] || scripts/deps.sh test
while [ "$(find "$folder" -name "$kind-*.log" | wc -l)" -lt "$runs" ]; do
	log="$folder/$kind-$(date +%Y%m%d-%H%M%S)-$(git describe --always --dirty --exclude '*').log"
	echo "$(date +%H:%M:%S) $log"
	[ "$kind" = idle ] || start_load
	status=0
	tests/run.py quick >"$log.part" 2>&1 || status=$?
	stop_load
	# 0: green, 1: failures, otherwise interrupted
	if [ "$status" -gt 1 ] || ! grep -qE '^[0-9]+ passed, ' "$log.part"; then
		tail -20 "$log.part" >&2
		echo "The tests did not run to their end; what they printed is above and in $log.part." >&2
		exit 1
	fi
	mv "$log.part" "$log"
	echo "  $(grep -E '^took ' "$log" | tail -1), $(tail -1 "$log")"
done
report
