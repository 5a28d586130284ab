# For the suites, which source it: starts a server and says where it listens.
#
#   start SERVER-COMMAND...   sets $host, $port and $server, its process
#   stop
#
# A server of ours prints a `listening service=kv mode=resp addr=HOST:PORT ...` line. A `redis-server` is
# given a port that is free a moment before. Uses $work, a directory for what they print; $work/data is
# empty at each start. $ours is the command of a suite to which none was given: it has a log, so that
# SAVE and its like have something to do.

ours=("$root/target/release/tidewire" serve kv --listen kv/resp=127.0.0.1:0 --admin off --control off
  --durability os --data "$work/data")
server=
trap 'stop' EXIT

start() {
  host=127.0.0.1
  rm -rf "$work/data"
  mkdir -p "$work/data"
  if [ "$(basename "$1")" = redis-server ]; then
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$@" --port "$port" --dir "$work/data" > "$work/server.out" 2> "$work/server.err" &
  else
    command -v "$1" > /dev/null || { echo "no $1: cargo build --release first, or name a server" >&2; exit 1; }
    port=
    # What the one before has printed must not be taken for what this one prints.
    rm -f "$work/server.out"
    touch "$work/server.out"
    "$@" > "$work/server.out" 2> "$work/server.err" &
  fi
  server=$!
  for _ in $(seq 300); do
    [ -n "$port" ] || port=$(sed -n 's/^listening service=kv mode=resp addr=[^ ]*:\([0-9]*\) .*/\1/p' "$work/server.out")
    if [ -n "$port" ] && (exec 3<> "/dev/tcp/$host/$port") 2> /dev/null; then
      return
    fi
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
  done
  cat "$work/server.err" >&2
  echo "$1 does not listen" >&2
  exit 1
}

stop() {
  [ -z "$server" ] || kill "$server" 2> /dev/null || true
  [ -z "$server" ] || wait "$server" 2> /dev/null || true
  server=
}
