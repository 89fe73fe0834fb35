#!/usr/bin/env bash
# Installs Debian packages that are missing: tools/install.sh PACKAGE...   (apt-get, as root or by sudo)
set -eu
missing=()
for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing packages, and neither root nor sudo to install them; as root: apt-get install ${missing[*]}" >&2; exit 1; }
    sudo=sudo
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
