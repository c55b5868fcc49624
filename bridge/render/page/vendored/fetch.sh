#!/bin/sh
# Fetch and build the libraries of the page: sh fetch.sh [FOLDER]  (needs npm 10 or newer; default: this folder)
#
# npm checks what it fetches against the hashes in package-lock.json, runs no script of a package, and esbuild
# gives the same bytes every time: SHA256SUMS says which. To take a newer version: change package.json, run
# npm install --package-lock-only --omit-lockfile-registry-resolved, then this script with UPDATE=1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/package-lock.json" "$here/charts.js" "$here/tables.js" "$work"
cd "$work"
npm ci --ignore-scripts --no-audit --no-fund --silent
# bundle SCRIPT NAME: the parts of a library that SCRIPT names, as NAME.min.js, which sets the global NAME.
bundle() {
  node_modules/.bin/esbuild "$1" --bundle --minify --format=iife --global-name="$2" --target=es2022 \
    --define:process.env.NODE_ENV='"production"' --charset=utf8 --legal-comments=none --log-level=warning \
    --outfile="$out/$2.min.js"
}
bundle charts.js echarts
bundle tables.js tabulator
mkdir -p "$out/licences"
tabulator=node_modules/tabulator-tables
# The line that names a source map goes: there is none, and a browser would ask for it.
sed 's|/\*# sourceMappingURL=.*\*/||' "$tabulator/dist/css/tabulator_simple.min.css" > "$out/tabulator.min.css"
cp "$tabulator/LICENSE" "$out/licences/tabulator-LICENSE"
cp node_modules/echarts/LICENSE "$out/licences/echarts-LICENSE"
cp node_modules/echarts/NOTICE "$out/licences/echarts-NOTICE"
cp node_modules/zrender/LICENSE "$out/licences/zrender-LICENSE"
cp node_modules/tslib/LICENSE.txt "$out/licences/tslib-LICENSE"
cd "$out"
if [ "${UPDATE:-}" ]; then
  sha256sum echarts.min.js tabulator.min.js tabulator.min.css licences/* > SHA256SUMS
else
  sha256sum --check --quiet "$here/SHA256SUMS"
fi
