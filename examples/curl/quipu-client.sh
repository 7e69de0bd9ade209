#!/bin/sh
# A client of Quipu for a shell with curl 7.71 or later. docs/CLIENTS.md explains its rules.
#
#   ./quipu-client.sh increase visits [KEY]       an increase that counts once, however often it is sent
#   ./quipu-client.sh send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
#   ./quipu-client.sh badge dave                  the number of unread messages, live
#
# QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one. Items and users
# go into the URL as they are: use ids that need no percent-encoding.
set -eu

server=${QUIPU_SERVER:-http://127.0.0.1:8080}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# Calls curl with the API key, which stays out of the list of processes because it comes through standard input.
call() {
	if [ -n "${QUIPU_API_KEY:-}" ]; then
		printf 'header = "Authorization: Bearer %s"\n' "$QUIPU_API_KEY"
	fi | curl --config - --silent --show-error "$@"
}

# change SECONDS PATH BODY KEY: sends a change until it is answered for good. The answer is in the file $answer.
#
# curl itself retries what may be retried: no connection, no answer, 408, 429, 502, 503, 504. It doubles its pauses, and
# waits for Retry-After. Every attempt carries the same key, so only one takes effect. (Don't add --fail: together with
# --retry-all-errors it would retry refusals, too.)
change() {
	status=$(call --max-time 10 --retry 100 --retry-all-errors --retry-max-time "$1" --output "$answer" \
		--write-out '%{http_code}' --request POST "$server$2" --header 'Content-Type: application/json' \
		--header "Idempotency-Key: $4" --data "$3") || status=000
	case $status in
	2??) ;;
	000 | 401 | 403 | 408 | 429 | 50[234])
		# An earlier attempt may have happened, whatever the last answer says: curl does not tell. With 401 and 403,
		# the server has not even looked at the key.
		echo "It may have happened; run this again with the key: $status; key $4" >&2
		exit 2
		;;
	*)
		echo "Nothing was changed: $status $(cat "$answer")" >&2
		exit 1
		;;
	esac
}

# Prints a member of the answer, a flat JSON object. Use jq where you have it.
member() {
	sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

json_string() {
	printf '%s' "$1" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' | awk '{ printf "%s%s", sep, $0; sep = "\\n" }'
}

increase() {
	change 60 "/api/v1/counts/$1/increase" '{"amount":1}' "$2"
	member value <"$answer"
}

# Waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes.
send() {
	change 180 /api/send "{\"userId\":\"$(json_string "$1")\",\"message\":\"$(json_string "$2")\"}" "$3"
	member messageId <"$answer"
}

# Follows the stream for ever. After a loss it asks for what is newer than the last event. A connection without a byte for
# three heartbeats is dead. An event counts when its empty line has come: half of one is not shown.
badge() {
	last_id=
	while :; do
		# The loop at the end of a pipe is a process of its own, so it leaves the last id in a file.
		call --no-buffer --fail --speed-limit 1 --speed-time 45 ${last_id:+--header "Last-Event-ID: $last_id"} \
			"$server/counters/user/$1/stream" | while IFS= read -r line; do
			case $line in
			id:*) id=${line#id: } ;;
			data:*) data=${line#data: } ;;
			'')
				if [ -n "${data:-}" ]; then
					echo "$(printf '%s\n' "$data" | member count) unread"
					echo "$id" >"$answer"
				fi
				data=
				;;
			esac
		done || :
		last_id=$(cat "$answer")
		sleep 2
	done
}

# A job that must survive a restart of this script stores its key before the first attempt.
new_key=$(cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen)
case "${1:-} $#" in
'increase 2' | 'increase 3') increase "$2" "${3:-$new_key}" ;;
'send 3' | 'send 4') send "$2" "$3" "${4:-$new_key}" ;;
'badge 2') badge "$2" ;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 1
	;;
esac
