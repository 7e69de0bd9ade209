#!/usr/bin/env bash
# Builds Citus for make test-citus and the bench, beside the PostgreSQL of this machine and without changing it.
#
#   scripts/citus.sh SOURCE PREFIX     SOURCE: Citus's unpacked sources; PREFIX: a folder that does not exist yet
#
# PREFIX becomes a copy of PostgreSQL's programs with Citus among its extensions. The last line that is printed says how
# to use it. Takes a minute and a half of processor time.
set -euo pipefail

if [ $# -ne 2 ] || [ ! -x "$1/configure" ] || [ -e "$2" ]; then
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
source=$(cd "$1" && pwd)
version=$(pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
release=$(dpkg-query -W -f '${Version}' "postgresql-$version")

# PostgreSQL finds its files by their place relative to its programs, so a copy works anywhere.
mkdir -p "$2/lib/postgresql" "$2/share/postgresql" "$2/include"
prefix=$(cd "$2" && pwd)
cp -a "/usr/lib/postgresql/$version" "$prefix/lib/postgresql/"
cp -a "/usr/share/postgresql/$version" "$prefix/share/postgresql/"
cp -a /usr/include/postgresql "$prefix/include/"
config=$prefix/lib/postgresql/$version/bin/pg_config

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir "$build/packages"
cp -a "$source/." "$build"
cd "$build"

# Headers of exactly this PostgreSQL, and of what it was built with. Installing the packages could also upgrade the server,
# under whatever uses it now.
chmod 755 "$build" "$build/packages"
[ "$(id -u)" -ne 0 ] || chown _apt "$build/packages"
(cd packages && apt-get download -qq "postgresql-server-dev-$version=$release" krb5-multidev libzstd-dev)
for package in packages/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -x -C "$prefix" --strip-components=2
done

# Sources of 13.2.2 have a copy of have_createdb_privilege(), which PostgreSQL exports itself from 15.20 on.
if grep -qrw have_createdb_privilege "$prefix/include/postgresql/$version/server/commands"; then
	sed -i '/^static inline bool$/{N;/have_createdb_privilege/{:more;/\n}$/!{N;b more};c\
extern bool have_createdb_privilege(void);
}}' src/include/pg_version_compat.h
fi

./configure "PG_CONFIG=$config" "CPPFLAGS=-I$prefix/include -I$prefix/include/mit-krb5" \
	--without-libcurl --without-lz4 --without-zstd >configure.out
# Without LLVM's copy of every file: Quipu's sessions do not use it.
make -j"$(nproc)" with_llvm=no extension >make.out 2>&1 || { tail -30 make.out >&2 && exit 1; }
make with_llvm=no install-extension >install.out 2>&1 || { tail -30 install.out >&2 && exit 1; }

# The linker leaves open what PostgreSQL and its libraries define. A name that they do not define would otherwise be missed
# only when a server starts.
postgres=$prefix/lib/postgresql/$version/bin/postgres
libraries=$(ldd "$postgres" | awk '$3 ~ "^/" {print $3}')
missing=$(LD_PRELOAD=${libraries//$'\n'/ } ldd -r "$prefix/lib/postgresql/$version/lib/citus.so" 2>&1 |
	sed -n 's/^undefined symbol: \([^[:space:]]*\).*/\1/p' | sort -u |
	comm -23 - <(nm -D --defined-only "$postgres" | awk '{print $3}' | sort -u))
[ -z "$missing" ] || { echo "PostgreSQL $release does not define what these sources of Citus use: $missing" >&2 && exit 1; }
echo "PG_CONFIG=$config make test-citus"
