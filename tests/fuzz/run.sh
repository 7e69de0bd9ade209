#!/usr/bin/env bash
# Fuzzes every target for SECONDS_EACH (600) seconds with libFuzzer, starting from the corpus. What is
# found new stays in build-fuzz/new/<target>; a crash ends the run and leaves its input there.
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${SECONDS_EACH:-600}
if [ ! -f build-fuzz/build.ninja ]; then
	CC=clang meson setup build-fuzz -Dtests=true -Dfuzz=true -Dtest_build=true -Db_lundef=false \
		-Db_sanitize=address,undefined \
		-Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all' >/dev/null
fi
ninja --quiet -C build-fuzz
for target in ${*:-$(ls tests/fuzz/corpus)}; do
	mkdir -p "build-fuzz/new/$target"
	echo "fuzzing $target for $seconds s"
	build-fuzz/tests/fuzz/fuzz_"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
		-dict=tests/fuzz/"$target".dict -artifact_prefix="build-fuzz/new/$target/" -print_final_stats=1 \
		"build-fuzz/new/$target" "tests/fuzz/corpus/$target" 2>&1 | tail -12
done
