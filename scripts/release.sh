#!/bin/sh
# Builds what a release consists of, from the last commit alone: the same commit gives the same bytes on the same Debian.
#
#   release.sh [FOLDER]     where to put it; default: dist
#
#   quipu-VERSION.tar.gz          the sources
#   quipu_VERSION-1_ARCH.deb      the Debian package, built from them
#   quipu-VERSION-ARCH.oci.tar    the image with every role, built from them (WITHOUT_IMAGE=yes leaves it out)
#   quipu-VERSION-ARCH.cdx.json   what the program contains and links to: a CycloneDX bill of materials
#   SHA256SUMS                    of all of them
#
# ENGINE and OPTIONS choose how the image is built, as for scripts/image.sh.
set -eu
out=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")/.."

if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	echo "a release is built from a commit, and there are changes that are not committed" >&2
	exit 1
fi
version=$(scripts/version.sh)
if ! grep -Eq "^## $(echo "$version" | sed 's/[.]/[.]/g') \([0-9]{4}-[0-9]{2}-[0-9]{2}\)\$" CHANGELOG.md; then
	echo "CHANGELOG.md has no heading \"## $version (YYYY-MM-DD)\", so users would not know what is in the release" >&2
	exit 1
fi
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"

echo "sources"
git archive --format=tar --prefix="quipu-$version/" HEAD | gzip -9n > "$out/quipu-$version.tar.gz"
tar -xf "$out/quipu-$version.tar.gz" -C "$work"
cd "$work/quipu-$version"

echo "Debian package"
scripts/deb.sh "$work/deb" >/dev/null
mv "$work"/deb/*.deb "$out/"

echo "bill of materials"
dpkg-deb -x "$out/quipu_$version-1_$arch.deb" "$work/root"
scripts/sbom.py "$version" "$work/root/usr/bin/quipu" > "$out/quipu-$version-$arch.cdx.json"

if [ "${WITHOUT_IMAGE:-no}" != yes ]; then
	echo "image"
	scripts/oci_archive.sh "$out/quipu-$version-$arch.oci.tar"
fi

cd "$out"
sha256sum -- * > "$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
chmod 644 -- *
ls -l
