# kill -9 under writes with a cache that writes back and nothing behind it: what was flushed is there, as without it.
VOLUME_MORE='cache = { size = "16 MiB"; write = "back"; };'
. "$(dirname "$0")/test_kill_loop.sh"
