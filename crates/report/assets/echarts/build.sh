#!/usr/bin/env bash
# Makes echarts.min.js of entry.js and the versions in package.json. Needs node and npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/entry.js" "$work"
cd "$work"
npm install --silent --no-audit --no-fund --no-package-lock
version=$(node -p 'require("echarts/package.json").version')
banner="/*! Apache ECharts $version, Copyright 2017-2026 The Apache Software Foundation, Apache License 2.0
(https://www.apache.org/licenses/LICENSE-2.0). Parts after d3 and zrender, tslib (Copyright (c) Microsoft
Corporation, 0BSD).

d3: $(cat node_modules/echarts/licenses/LICENSE-d3)

zrender: $(cat node_modules/zrender/LICENSE)
*/"
npx esbuild entry.js --bundle --minify --charset=ascii --format=iife --global-name=echarts \
    --target=es2020 '--define:process.env.NODE_ENV="production"' --legal-comments=none \
    "--banner:js=$banner" --outfile=echarts.min.js --log-level=warning
cp echarts.min.js "$here/echarts.min.js"
cp node_modules/echarts/LICENSE "$here/LICENSE-echarts"
cp node_modules/echarts/NOTICE "$here/NOTICE-echarts"
cp node_modules/echarts/licenses/LICENSE-d3 "$here/LICENSE-d3"
cp node_modules/zrender/LICENSE "$here/LICENSE-zrender"
