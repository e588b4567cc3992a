# kill -9 under load, again and again, also while what was dirty is taken over: every write that was answered on the strength
# of a battery is there. The arena in a file, and in memory that a stand-in for systemd keeps. In `make check` a few rounds;
# `make soak-cache LOOPS=200` goes on.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"
. "$(dirname "$0")/kill_functions.sh"
source_says 0
EXTRA_TOP=$POWER
rounds_of file "${LOOPS:-3}" answered "protection = \"battery\"; arena = \"$DIR/arena\";"
start_store
rounds_of memory $(((${LOOPS:-3} + 3) / 4 + 1)) answered 'protection = "battery";'
