# SPDX-License-Identifier: Apache-2.0
# What `lockstep slurm-config --apply` runs on each host as root. In front of it come the values of
#   packages    empty: install nothing; else compute or control: install what such a host lacks, and end
#   control     "yes" on the host of the controller and of the accounting
#   cluster     the name of the cluster
#   key         munge's key in base64
# and then the files of the configuration, as /etc/slurm/NAME.new.
set -eu
PATH=$PATH:/usr/sbin:/sbin

fail() {
    echo "$*" >&2
    exit 1
}

install_packages() {
    need=""
    { command -v slurmd && command -v munged && command -v sinfo; } >/dev/null || need="slurmd slurm-client munge slurm-wlm-basic-plugins"
    if [ "$packages" = control ]; then
        command -v slurmctld >/dev/null || need="$need slurmctld"
        { command -v slurmdbd && command -v mariadbd; } >/dev/null || need="$need slurmdbd slurm-wlm-mysql-plugin mariadb-server"
    fi
    [ -n "$need" ] || return 0
    command -v apt-get >/dev/null || fail "there is no apt-get here: install the equivalents of $need by hand"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $need; } >/tmp/lockstep-apt.$$ 2>&1 ||
        fail "apt-get install $need: $(tail -n 2 /tmp/lockstep-apt.$$ | tr '\n' ' ')"
    rm -f /tmp/lockstep-apt.$$
    echo "installed $need"
}

# place FILE OWNER MODE: FILE.new becomes FILE; an older one with other text is kept as FILE.before.
place() {
    chown "$2" "$1.new"
    chmod "$3" "$1.new"
    [ ! -e "$1" ] || cmp -s "$1" "$1.new" || cp -p "$1" "$1.before"
    mv -f "$1.new" "$1"
}

has_systemd() { [ -d /run/systemd/system ]; }

# restart NAME PIDFILE COMMAND...: a daemon, through systemd where there is one.
restart() {
    name=$1 pid_file=$2
    shift 2
    if has_systemd; then
        systemctl enable -q "$name" || true
        systemctl restart "$name" || fail "$name does not start: $(systemctl status "$name" 2>&1 | tail -n 1)"
        return 0
    fi
    if pid=$(cat "$pid_file" 2>/dev/null) && kill "$pid" 2>/dev/null; then
        wait_for "$name to end" 30 eval "! kill -0 $pid 2>/dev/null"
    fi
    "$@" </dev/null >/dev/null 2>&1 || fail "$name does not start; look into /var/log/slurm or /var/log/munge"
}

# wait_for WHAT SECONDS COMMAND...
wait_for() {
    what=$1 tries=$(($2 * 5))
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "waited in vain for $what"
        sleep 0.2
    done
}

start_munge() {
    printf '%s' "$key" | base64 -d >/etc/munge/munge.key.new
    place /etc/munge/munge.key munge:munge 400
    install -d -o munge -g munge -m 755 /run/munge
    restart munge /run/munge/munged.pid runuser -u munge -- munged
    wait_for "munge" 30 sh -c "munge -n | unmunge"
}

start_database() {
    if ! mariadb -e "SELECT 1" >/dev/null 2>&1; then
        if has_systemd; then
            systemctl enable -q mariadb && systemctl restart mariadb
        else
            install -d -o mysql -g mysql -m 755 /run/mysqld /var/lib/mysql
            [ -d /var/lib/mysql/mysql ] || mariadb-install-db --user=mysql >/dev/null 2>&1
            setsid runuser -u mysql -- mariadbd </dev/null >/dev/null 2>&1 &
        fi
        wait_for "MariaDB" 60 mariadb -e "SELECT 1"
    fi
    # Only the system's user slurm is let in, without a password.
    mariadb -e "CREATE DATABASE IF NOT EXISTS slurm_acct_db; CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
        GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
}

start_control() {
    install -d -o slurm -g slurm -m 755 /var/spool/slurmctld
    start_database
    restart slurmdbd /run/slurmdbd.pid slurmdbd
    wait_for "slurmdbd" 60 sacctmgr -n show cluster
    sacctmgr -i add cluster "$cluster" >/dev/null 2>&1 || true # it may be there
    restart slurmctld /run/slurmctld.pid slurmctld
}

if [ -n "$packages" ]; then
    install_packages
    exit 0
fi
install -d -o slurm -g slurm -m 755 /var/log/slurm
install -d -m 755 /var/spool/slurmd
for new in /etc/slurm/*.new; do
    case $new in
        */slurmdbd.conf.new) place "${new%.new}" slurm:slurm 600 ;;
        *) place "${new%.new}" root:root 644 ;;
    esac
done
start_munge
[ "$control" != yes ] || start_control
restart slurmd /run/slurmd.pid slurmd
