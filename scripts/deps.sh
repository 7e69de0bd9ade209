#!/bin/sh
# Installs the Debian packages that a purpose needs and this machine lacks: build, test, bench, image.
# Says what it installs, and does nothing where nothing is missing.
set -eu

build="gcc libc6-dev make meson ninja-build pkg-config python3 libuv1-dev node-llhttp
	libjansson-dev libpq-dev libsqlite3-dev libinih-dev libssl-dev libhiredis-dev librdkafka-dev
	librabbitmq-dev libnats-dev libprotobuf-c-dev protobuf-c-compiler libprotobuf-dev libcurl4-openssl-dev"
test="$build clang clang-format libclang-rt-14-dev libcmocka-dev curl postgresql strace gcovr maven openjdk-17-jre-headless
	redis-server python3-pytest python3-pytest-xdist python3-psycopg2 python3-redis python3-kafka python3-requests python3-jsonschema
	python3-yaml python3-jwt python3-cryptography docker-compose sqlite3
	nats-server rabbitmq-server python3-pika openssl protobuf-compiler python3-protobuf"
bench="$build postgresql postgresql-contrib redis-server nats-server rabbitmq-server webdis wrk python3-psycopg2 python3-kafka maven openjdk-17-jre-headless"
image="buildah debootstrap python3-pytest"

case "${1:-}" in
build) wanted=$build ;;
test) wanted=$test ;;
bench) wanted=$bench ;;
image) wanted=$image ;;
*) echo "usage: scripts/deps.sh build|test|bench|image" >&2; exit 2 ;;
esac

missing=
for package in $wanted; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "installing:$missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
	as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# The servers that tests start are private ones: none of Debian's own is to run because of us.
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
