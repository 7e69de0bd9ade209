#!/bin/sh
# Builds the images, all of the same binary: quipu, which runs every role, and one for each role.
#
#   ENGINE   docker, podman or buildah, perhaps with options; the first that is installed
#   OPTIONS  more options for its build command
#   TAG      latest
#   IMAGES   which of them; all
set -eu
cd "$(dirname "$0")/.."

roles="all counts gateway sender entitlements notifications pots dialogs counters"

image_of() {
	case $1 in
	all) echo quipu ;;
	counts) echo count-processing-service ;;
	*) echo "quipu-$1" ;;
	esac
}

find_engine() {
	for engine in docker podman buildah; do
		if command -v "$engine" >/dev/null; then
			echo "$engine"
			return
		fi
	done
	echo "docker, podman or buildah is needed to build images" >&2
	exit 1
}

engine=${ENGINE:-$(find_engine)}
options=${OPTIONS:-}
case $engine in
*docker*) ;;
*) options="--format docker --layers $options" ;; # the other format knows no health check
esac

for role in $roles; do
	image=$(image_of "$role")
	case " ${IMAGES:-$image} " in
	*" $image "*) ;;
	*) continue ;;
	esac
	echo "building $image:${TAG:-latest}"
	# shellcheck disable=SC2086 # lists of words
	$engine build $options -f deploy/Containerfile --build-arg "ROLE=$role" -t "$image:${TAG:-latest}" .
done
