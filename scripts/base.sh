#!/usr/bin/env bash
# Makes a base image of Debian packages with buildah, where no registry is to be asked: scripts/base.sh TAG [SUITE].
# Python 3.11 or newer with venv, and certificates; no lists of packages, no manuals. As root, with debootstrap.
set -euo pipefail
tag=${1:?which tag? scripts/base.sh TAG [SUITE]}
suite=${2:-bookworm}
read -r -a flags <<<"${TRACKLOG_BUILDAH_FLAGS:-}"
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root/fs" >"$root/log" || {
  tail -n 20 "$root/log" >&2
  exit 1
}
rm -rf "$root"/fs/var/cache/apt "$root"/fs/var/lib/apt/lists "$root"/fs/usr/share/{doc,man,locale}
tar -C "$root/fs" --exclude=./dev --exclude=./proc --exclude=./sys -cf "$root/base.tar" .
container=$(buildah "${flags[@]}" from scratch)
buildah "${flags[@]}" add --quiet "$container" "$root/base.tar" /
buildah "${flags[@]}" commit --quiet --rm "$container" "$tag"
