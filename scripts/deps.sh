#!/usr/bin/env bash
# Installs the missing packages for one or more purposes: build, test, full (what make test-full needs besides test, image
# and deb), bench, image, deb. Prints what it installs and its progress; does nothing if no package is missing.
#
#   deps.sh PURPOSE...
#   deps.sh --list PURPOSE...     only prints the names
#
# Knows Debian 12, Ubuntu 24.04 and, to build, Fedora; /etc/os-release (or OS_RELEASE) says which of them this is.
set -euo pipefail

build="gcc libc6-dev make meson ninja-build pkg-config python3 libuv1-dev node-llhttp libnghttp2-dev
	libjansson-dev libpq-dev libsqlite3-dev libssl-dev zlib1g-dev libhiredis-dev librdkafka-dev
	librabbitmq-dev libnats-dev libprotobuf-c-dev protobuf-c-compiler libprotobuf-dev libcurl4-openssl-dev
	libjs-dygraphs"
test="$build ccache clang clang-format libclang-rt-14-dev libcmocka-dev curl postgresql strace gcovr maven openjdk-17-jre-headless
	redis-server python3-pytest python3-pytest-xdist python3-psycopg2 python3-redis python3-kafka python3-requests python3-jsonschema
	python3-yaml python3-jwt python3-cryptography docker-compose sqlite3 mandoc prometheus nghttp2-client python3-h2 python3-httpx
	nats-server rabbitmq-server python3-pika python3-pip libfaketime openssl protobuf-compiler python3-protobuf nodejs systemd"
full="chromium golang-go openjdk-17-jdk-headless libinih-dev" # libinih for the previous release, which tests of upgrades build
bench="$build postgresql postgresql-contrib redis-server nats-server rabbitmq-server webdis wrk nghttp2-client nghttp2-server python3-psycopg2 python3-kafka maven openjdk-17-jre-headless"
image="buildah debootstrap python3-pytest"
deb="dpkg-dev debhelper po-debconf lintian"

# Fedora has no dygraphs, so the console there has figures and no plots.
fedora_build="gcc make meson ninja-build pkgconf-pkg-config python3 libuv-devel llhttp-devel libnghttp2-devel
	jansson-devel libpq-devel sqlite-devel openssl-devel zlib-devel hiredis-devel librdkafka-devel
	librabbitmq-devel cnats-devel protobuf-c-devel protobuf-c-compiler protobuf-devel libcurl-devel"

fail() {
	echo "$1" >&2
	exit "${2:-1}"
}

# Prints the names for a purpose on this system.
names_for() {
	case "$system:$1" in
	debian-12:*) echo "${!1}" ;;
	ubuntu-24.04:*) echo "${!1}" | sed 's/\<libclang-rt-14-dev\>/libclang-rt-18-dev/; s/\<chromium\>/chromium-browser/' ;;
	fedora-*:build) echo "$fedora_build" ;;
	fedora-*) fail "On Fedora only \"build\" is known: tests, benchmarks and packages need Debian 12 or Ubuntu 24.04." ;;
	*) fail "The names of the packages are known for Debian 12, Ubuntu 24.04 and Fedora, and this is $system.
Find those of \"$1\" in scripts/deps.sh under their names here; then meson setup build && ninja -C build
builds the program, and needs none of these scripts." ;;
	esac
}

# E.g. debian-12. Prefers the name of the system itself to those that it resembles.
detect_system() {
	local ID=unknown VERSION_ID=
	# shellcheck source=/dev/null
	[ -r "${OS_RELEASE:-/etc/os-release}" ] && . "${OS_RELEASE:-/etc/os-release}"
	echo "$ID-$VERSION_ID"
}

is_installed() {
	case "$system" in
	fedora-*) rpm -q --quiet --whatprovides "$1" ;;
	*) [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ] ;;
	esac
}

# Prints a line for every ten packages that are unpacked or set up, to show progress.
count_packages() {
	awk '/^(Unpacking|Setting up) / { if (++n % 10 == 0) { printf "  %d steps, now %s\n", n, $0; fflush() } }'
}

install_packages() {
	local as_root=()
	[ "$(id -u)" -eq 0 ] || as_root=(sudo)
	case "$system" in
	fedora-*) "${as_root[@]}" dnf install -y --setopt=install_weak_deps=False "$@" ;;
	*)
		"${as_root[@]}" apt-get update -qq >"$log" 2>&1 &&
			"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" 2>&1 |
			tee "$log" | count_packages
		;;
	esac
}

only_list=no
if [ "${1:-}" = --list ]; then
	only_list=yes
	shift
fi
[ $# -gt 0 ] || set -- none
for purpose in "$@"; do
	case "$purpose" in
	build | test | full | bench | image | deb) ;;
	*) fail "usage: scripts/deps.sh [--list] build|test|full|bench|image|deb ..." 2 ;;
	esac
done

system=$(detect_system)
wanted=
for purpose in "$@"; do
	wanted="$wanted $(names_for "$purpose")"
done
if [ "$only_list" = yes ]; then
	printf '%s\n' $wanted | sort -u
	exit 0
fi

missing=()
for package in $wanted; do
	is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Installing ${#missing[@]} packages and what they depend on: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install_packages "${missing[@]}"; then
	tail -20 "$log" >&2
	fail "The packages could not be installed; the last words of the package manager are above."
fi
