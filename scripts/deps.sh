#!/usr/bin/env bash
# Installs the missing Debian packages for one or more purposes: build, test, full (what make test-full needs besides test
# and image), bench, image. Prints what it installs and its progress; does nothing if no package is missing.
set -euo pipefail

build="gcc libc6-dev make meson ninja-build pkg-config python3 libuv1-dev node-llhttp libnghttp2-dev
	libjansson-dev libpq-dev libsqlite3-dev libssl-dev zlib1g-dev libhiredis-dev librdkafka-dev
	librabbitmq-dev libnats-dev libprotobuf-c-dev protobuf-c-compiler libprotobuf-dev libcurl4-openssl-dev
	libjs-dygraphs"
test="$build ccache clang clang-format libclang-rt-14-dev libcmocka-dev curl postgresql strace gcovr maven openjdk-17-jre-headless
	redis-server python3-pytest python3-pytest-xdist python3-psycopg2 python3-redis python3-kafka python3-requests python3-jsonschema
	python3-yaml python3-jwt python3-cryptography docker-compose sqlite3 mandoc prometheus nghttp2-client python3-h2
	nats-server rabbitmq-server python3-pika libfaketime openssl protobuf-compiler python3-protobuf"
full="chromium nodejs golang-go openjdk-17-jdk-headless"
bench="$build postgresql postgresql-contrib redis-server nats-server rabbitmq-server webdis wrk nghttp2-client nghttp2-server python3-psycopg2 python3-kafka maven openjdk-17-jre-headless"
image="buildah debootstrap python3-pytest"

wanted=
for purpose in "$@"; do
	case "$purpose" in
	build | test | full | bench | image) wanted="$wanted ${!purpose}" ;;
	*) wanted= && break ;;
	esac
done
if [ -z "$wanted" ]; then
	echo "usage: scripts/deps.sh build|test|full|bench|image ..." >&2
	exit 2
fi

missing=()
for package in $wanted; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Installing ${#missing[@]} packages and what they depend on: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# Prints a line for every ten packages that are unpacked or set up, to show progress.
count_packages() {
	awk '/^(Unpacking|Setting up) / { if (++n % 10 == 0) { printf "  %d steps, now %s\n", n, $0; fflush() } }'
}
if ! "${as_root[@]}" apt-get update -qq >"$log" 2>&1 ||
	! "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}" 2>&1 | tee "$log" | count_packages; then
	tail -20 "$log" >&2
	echo "The packages could not be installed; apt-get's last words are above." >&2
	exit 1
fi
