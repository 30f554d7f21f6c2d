#!/usr/bin/env bash
# Builds the image with buildah, and the example on top of it: scripts/image.sh BASE TAG. Needs no daemon and, run as
# root, no user namespaces. TRACKLOG_EXTRAS names the extras, TRACKLOG_BUILDAH_FLAGS goes to buildah as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=${1:?which base image? scripts/image.sh BASE TAG}
tag=${2:?which tag? scripts/image.sh BASE TAG}
extras=${TRACKLOG_EXTRAS:-serve,registry}
read -r -a flags <<<"${TRACKLOG_BUILDAH_FLAGS:-}"

# What pip has to be told here (certificates, an index) is lent to the build and stays out of the image.
lent=()
for path in /etc/ssl/certs /etc/pip.conf; do
  [ -e "$path" ] && lent+=(--volume "$path:$path:ro")
done

export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
build() { buildah "${flags[@]}" bud --isolation chroot --pull=never --quiet "${lent[@]}" "$@"; }
build --build-arg "BASE=$base" --build-arg "EXTRAS=$extras" \
  --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" --tag "tracklog:$tag" .
build --build-arg "BASE=localhost/tracklog:$tag" --tag "tracklog-example:$tag" examples/image
buildah "${flags[@]}" images --format '{{.Name}}:{{.Tag}} {{.Size}}' | grep "tracklog"
