#!/usr/bin/env bash
# A lease from its request to its end, with curl. Without GPULEASE_ENDPOINT and GPULEASE_TOKEN: the API of `gpulease local`.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
api_file=${GPULEASE_HOME:-$HOME/.gpulease}/local/api.json
# field NAME: a field of the JSON on stdin; `a.b` is one inside another.
field() {
  python3 -c '
import functools, json, sys
value = functools.reduce(lambda found, key: found[key], sys.argv[1].split("."), json.load(sys.stdin))
print("" if value is None else value)' "$1"
}
endpoint=${GPULEASE_ENDPOINT:-$(field url < "$api_file")}
token=${GPULEASE_TOKEN:-$(field token < "$api_file")}
every=${EVERY_SECONDS:-5}

# call METHOD PATH [curl's options]: the answer; a refusal is shown and ends this script.
call() {
  local method=$1 path=$2 answer status
  shift 2
  answer=$(curl --silent --show-error --max-time 60 --request "$method" "$endpoint$path" \
    --header "Authorization: Bearer $token" --header "Content-Type: application/json" \
    --write-out '\n%{http_code}' "$@")
  status=${answer##*$'\n'}
  answer=${answer%$'\n'*}
  if [ "$status" -ge 400 ]; then
    echo "$method $path: $status: $answer" >&2
    return 1
  fi
  printf '%s\n' "$answer"
}

# until_state ID STATE: waits, and tells each change.
until_state() {
  local view state last=""
  while true; do
    view=$(call GET "/v1/leases/$1")
    state=$(field state <<< "$view")
    if [ "$state" != "$last" ]; then
      echo "$1 is $state; \$$(field price_per_hour_usd <<< "$view") per hour, \$$(field cost_so_far_usd <<< "$view") so far"
    fi
    last=$state
    if [ "$state" = "$2" ]; then return 0; fi
    if [ "$state" = released ]; then
      echo "$1 ended: $(field reason <<< "$view") $(field reason_detail <<< "$view")" >&2
      return 1
    fi
    sleep "$every"
  done
}

echo "The offers that would be tried:"
call POST "/v1/leases?dry_run=true" --data @"$here/lease.json" | field total

# The same key again gives the same lease, so repeating a request whose answer was lost rents nothing twice.
key="session-$(date +%s)-$$"
lease=$(call POST /v1/leases --header "Idempotency-Key: $key" --data @"$here/lease.json" | field id)
echo "asked for $lease"
until_state "$lease" running
echo "connect: $(call GET "/v1/leases/$lease" | field ssh)"

call PATCH "/v1/leases/$lease" --data '{"policy": {"budget_usd": "8"}}' > /dev/null
call POST "/v1/leases/$lease/touch" > /dev/null

call DELETE "/v1/leases/$lease" > /dev/null
until_state "$lease" released   # until then it is billed
echo "done: $(call GET "/v1/leases/$lease" | field reason)"
