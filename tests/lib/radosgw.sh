# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that want a server of others: radosgw_start FOLDER PORT begins Ceph's gateway with everything it needs, as this
# user, in memory (RADOSGW_BYTES of it), on loopback alone or at RADOSGW_ADDRESS, in about 20 s; radosgw_stop FOLDER ends it. Debian: radosgw ceph-mon ceph-osd ceph-mgr ceph-common.

radosgw_is_there() {
    local program
    for program in radosgw radosgw-admin ceph-mon ceph-osd ceph-mgr monmaptool ceph; do
        command -v $program >/dev/null || { echo "skipped: no $program (Debian: radosgw ceph-mon ceph-osd ceph-mgr ceph-common)" && return 1; }
    done
}

# The first daemon refuses (EPERM) what comes before it is ready, and may do so once more after it has answered.
radosgw_until() {
    local _
    for _ in $(seq 60); do
        timeout 60 "$@" && return 0
        sleep 0.5
    done
    return 1
}

radosgw_start() {
    local base=$1 port=$2 mon=$(($2 + 1)) id
    id=$(cat /proc/sys/kernel/random/uuid)
    mkdir -p "$base"/mon "$base"/osd "$base"/mgr "$base"/rgw "$base"/log
    cat >"$base/ceph.conf" <<CONF
[global]
fsid = $id
mon initial members = a
mon host = v1:127.0.0.1:$mon
public addr = 127.0.0.1
cluster addr = 127.0.0.1
public network = 127.0.0.0/8
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 500
osd crush chooseleaf type = 0
osd class update on start = false
osd objectstore = memstore
memstore device bytes = ${RADOSGW_BYTES:-1073741824}
mon warn on pool no redundancy = false
run dir = $base
admin socket = $base/\$name.asok
pid file = $base/\$name.pid
log file = $base/log/\$name.log
crash dir = $base
mgr initial modules =
[mon.a]
mon data = $base/mon
mon addr = v1:127.0.0.1:$mon
[osd.0]
osd data = $base/osd
[mgr.x]
mgr data = $base/mgr
[client.rgw]
rgw data = $base/rgw
rgw frontends = beast endpoint=${RADOSGW_ADDRESS:-127.0.0.1}:$port
rgw dns name = localhost
CONF
    export CEPH_CONF=$base/ceph.conf
    {
        monmaptool --create --clobber --fsid "$id" --addv a "[v1:127.0.0.1:$mon]" "$base/monmap" &&
            ceph-mon -i a --mkfs --monmap "$base/monmap" --mon-data "$base/mon" && ceph-mon -i a --mon-data "$base/mon" &&
            radosgw_until ceph -s && radosgw_until ceph-mgr -i x &&
            ceph-osd -i 0 --mkfs --osd-data "$base/osd" --osd-objectstore memstore &&
            radosgw_until ceph osd new "$(cat "$base/osd/fsid")" 0 && radosgw_until ceph-osd -i 0 --osd-data "$base/osd" &&
            radosgw_until radosgw --name client.rgw --no-mon-config
    } >"$base/log/start" 2>&1 || return 1
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/${RADOSGW_ADDRESS:-127.0.0.1}/$port") 2>/dev/null && break
        sleep 0.2
    done
    timeout 60 radosgw-admin user create --uid=test --display-name=test --access-key=AKIDTEST --secret=secret/+test >>"$base/log/start" 2>&1
}

radosgw_stop() {
    local file
    for file in "$1"/*.pid; do
        [ ! -e "$file" ] || kill -9 "$(cat "$file")" 2>/dev/null
    done
}
