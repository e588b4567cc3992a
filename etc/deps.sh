#!/bin/sh
# Install the Debian packages named that are missing: deps.sh PACKAGE... (root, or sudo).
set -eu
missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || :)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null || {
    echo "deps: install these packages by hand:$missing" >&2
    exit 1
}
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "deps: run as root, or install sudo; missing:$missing" >&2
        exit 1
    }
    as_root="sudo"
fi
echo "deps: installing$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
