#!/bin/sh
# Builds a Debian package of this tree. The same sources and the same SOURCE_DATE_EPOCH build the same bytes.
#
#   deb.sh [FOLDER]      where to put it; default: build-deb
#
#   SOURCE_DATE_EPOCH    the time that the package shows; default: that of the last commit, or now without git
#
# dpkg wants its files in debian/, so a copy of the tree is built: all that git does not ignore, or all without git.
set -eu
out=$(realpath -m "${1:-build-deb}")
cd "$(dirname "$0")/.."
version=$(scripts/version.sh)
maintainer=$(sed -n 's/^Maintainer: //p' deploy/debian/control)

in_git() {
	[ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]
}

list_files() {
	if in_git; then
		git ls-files -z --cached --others --exclude-standard --deduplicate
	else
		find . \( -name 'build*' -prune -o -path ./dist -prune -o -path ./quipu-data -prune \) -o -type f -print0
	fi
}

commit_time() {
	if in_git; then
		git log -1 --format=%ct
	else
		date +%s
	fi
}

# An entry per version; what changed is in CHANGELOG.md, which the package contains as changelog.gz.
write_changelog() {
	entry() {
		printf 'quipu (%s-1) unstable; urgency=medium\n\n  * changelog.gz beside this file says what is new.\n\n' "$1"
		printf ' -- %s  %s\n\n' "$maintainer" "$(LC_ALL=C date -u -R -d "$2")"
	}
	entry "$version" "@$SOURCE_DATE_EPOCH"
	sed -n 's/^## \([0-9.]*\) (\([0-9-]*\))$/\1 \2/p' CHANGELOG.md | while read -r released day; do
		[ "$released" = "$version" ] || entry "$released" "$day"
	done
}

export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(commit_time)}"
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-noautodbgsym parallel=$(nproc)}"
umask 022
mkdir -p "$out"
tree=$(mktemp -d)/quipu
trap 'rm -rf "$(dirname "$tree")"' EXIT
mkdir "$tree"
list_files | tar --null -T - -cf - | tar -xf - -C "$tree"
cp -R "$tree/deploy/debian" "$tree/debian"
write_changelog > "$tree/debian/changelog"
log=$out/build.log
if ! (cd "$tree" && dpkg-buildpackage -b -us -uc) > "$log" 2>&1; then
	tail -30 "$log" >&2
	echo "the package could not be built; $log has the rest" >&2
	exit 1
fi
for package in "$tree"/../*.deb; do
	mv "$package" "$out/"
	echo "$out/$(basename "$package")"
done
