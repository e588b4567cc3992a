# kill -9 under load, again and again, also while what was dirty is taken over: every write that was answered on the strength
# of a battery is there, with the arena in a file, and in memory that a stand-in for systemd keeps; and what was flushed into a
# log on two disks. In `make check` a few rounds; `make soak-cache LOOPS=200` goes on.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"
. "$(dirname "$0")/kill_functions.sh"
source_says 0
EXTRA_TOP=$POWER
rounds_of file "${LOOPS:-3}" answered "protection = \"battery\"; arena = \"$DIR/arena\";"
truncate -s 32M "$DIR/log0" "$DIR/log1"
rounds_of journal $(((${LOOPS:-3} + 3) / 4 + 1)) flushed "protection = \"journal\"; journal = [ \"$DIR/log0\", \"$DIR/log1\" ];"
start_store
rounds_of memory $(((${LOOPS:-3} + 3) / 4 + 1)) answered 'protection = "battery";'
