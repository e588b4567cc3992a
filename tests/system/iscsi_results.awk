# The verdicts of one suite of iscsi-test-cu --verbose: "SUITE.TEST passed|skipped|failed", a line a test.
# A test begins with "  Test: NAME ..."; its own messages follow, on that line or further ones, up to passed or FAILED.
# Some tests of SANITIZE skip only their part on CRYPTO ERASE.
function verdict(text) {
    if (text ~ /\[SKIPPED\]/ && !(text ~ /CRYPTO_ERASE/ && name !~ /Crypto/)) skipped = 1
    if (text ~ /FAILED *$/ && text !~ /\[FAILED\]/) { print suite "." name " failed"; name = "" }
    else if (text ~ /passed( |$)/) { print suite "." name (skipped ? " skipped" : " passed"); name = "" }
}
/^ *Test: / { name = $2; skipped = 0; sub(/^ *Test: [^ ]+ \.\.\./, ""); verdict($0); next }
name != "" { verdict($0) }
