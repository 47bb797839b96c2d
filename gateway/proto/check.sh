#!/bin/sh
# `make check-proto`: lint of the .proto files, and whether they break what was released. buf comes from npm, once.
set -eu
cd "$(dirname "$0")"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trioka/buf"
buf="$(command -v buf || true)"
if [ -z "$buf" ]; then
    buf="$cache/node_modules/.bin/buf"
    if [ ! -x "$buf" ]; then
        command -v npm >/dev/null || {
            echo "make check-proto needs buf, or npm to fetch it (@bufbuild/buf); neither is on the PATH." >&2
            exit 1
        }
        mkdir -p "$cache"
        (cd "$cache" && npm install --silent --no-audit --no-fund --no-save @bufbuild/buf@1)
    fi
fi
"$buf" lint
"$buf" breaking --against released.binpb
echo "v1 is compatible with what was released"
