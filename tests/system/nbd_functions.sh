# For the tests with raw NBD requests, besides functions.sh: cases are run and counted.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1 LOG
here=$(dirname "$0")
MODES=${MODES:-simple structured extended}
theme() { # NAME [what the theme wants, mode, tls]
    name=$1
    shift
    WITHOUT=${WITHOUT:-} "$python" "$here/nbd_$name.py" "$NBD_ADDRESS" "$PID" "$@" >"$DIR/cases" 2>&1 ||
        fail "$name $*${state:+, $state}: $(grep -v '^ok ' "$DIR/cases")"
    cat "$DIR/cases"
    cases=$((cases + $(grep -c '^ok ' "$DIR/cases")))
    runs=$((runs + 1))
}
