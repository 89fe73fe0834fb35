// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/launch.h"

#include "base/file.h"
#include "comm/group/environment.h"
#include "comm/store/store_address.h"
#include "execution/train/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { HOSTS_FILE_BYTES_MAX = 1 << 20 };

/* ---- tokens ---- */

ls_status ls_token_read(const char *file, char token_out[LS_COMM_TOKEN_BYTES])
{
    char line[LS_COMM_TOKEN_BYTES + 64] = "";
    if (!file || !file[0]) {
        return ls_environment_token(token_out);
    }
    const bool is_stdin = strcmp(file, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(file, "re");
    if (!in) {
        return ls_fail_errno(
            errno, "cannot read the token (the secret that the hosts of a run share) from %s", file);
    }
    const bool got = fgets(line, sizeof line, in) != NULL;
    if (!is_stdin) {
        fclose(in);
    }
    line[strcspn(line, " \t\r\n")] = '\0';
    if (!got) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s contains no token: its first line must be the secret that the hosts of the run share",
            is_stdin ? "stdin" : file);
    }
    LS_TRY(ls_token_check(line, is_stdin ? "stdin" : file));
    memcpy(token_out, line, LS_COMM_TOKEN_BYTES);
    return LS_OK;
}

static ls_status make_token(char token_out[LS_COMM_TOKEN_BYTES])
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return ls_fail_errno(errno, "cannot create a token (the secret that the hosts of a run share)");
    }
    for (size_t i = 0; i < sizeof random; i++) {
        snprintf(token_out + 2 * i, 3, "%02x", random[i]);
    }
    return LS_OK;
}

/* ---- the file of hosts ---- */

/* Whether a datagram socket of this host can be bound to the address. */
static bool is_own_address(const char *host)
{
    char address[300];
    ls_store_socket_address found;
    const char *format = strchr(host, ':') ? "[%s]:0" : "%s:0";
    const int bytes = snprintf(address, sizeof address, format, host);
    if (bytes < 0 || (size_t)bytes >= sizeof address || ls_store_address_find(address, &found) != LS_OK) {
        return false;
    }
    const int fd = socket(found.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool own = fd >= 0 && bind(fd, (const struct sockaddr *)&found.storage, found.bytes) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return own;
}

static bool is_here(const ls_host_entry *entry)
{
    char own[LS_NODE_NAME_BYTES] = "";
    gethostname(own, sizeof own - 1);
    const size_t own_short = strcspn(own, ".");
    return strcmp(entry->name, "localhost") == 0 || strcmp(entry->name, own) == 0 ||
           (strlen(entry->name) == own_short && memcmp(entry->name, own, own_short) == 0) ||
           is_own_address(entry->address);
}

static ls_status read_slots(const char *path, unsigned line, const char *word, uint32_t *slots_out)
{
    const char *digits = word + strlen("slots=");
    const unsigned long slots = strtoul(digits, NULL, 10);
    if (strspn(digits, "0123456789") != strlen(digits) || !digits[0] || slots < 1 ||
        slots > LS_LOCAL_RANKS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "%s:%u: '%.60s': slots, the number of ranks that the host may run, must be 1 to %d",
                       path, line, word, LS_LOCAL_RANKS_MAX);
    }
    *slots_out = (uint32_t)slots;
    return LS_OK;
}

/* A name goes to ssh and into a shell line, so only characters of names and addresses are
 * allowed. */
static ls_status check_name(const char *path, unsigned line, const char *word)
{
    const size_t good = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:@");
    const char *colon = strchr(word, ':'); /* one: slots, elsewhere; more: an address of IPv6 */
    if (word[good] || word[0] == '-' || strlen(word) >= LS_NODE_NAME_BYTES ||
        (colon && !strchr(colon + 1, ':'))) {
        return ls_fail(LS_ERR_INVALID,
                       "%s:%u: '%.60s' is not a valid host name (a line is: host [slots=N] [address])", path,
                       line, word);
    }
    return LS_OK;
}

/* Parses one line; name stays NULL for an empty one. */
static ls_status read_line(ls_arena *arena, const char *path, unsigned line, char *text, ls_host_entry *out)
{
    char *rest = NULL;
    text[strcspn(text, "#")] = '\0';
    *out = (ls_host_entry){.slots = 1};
    for (char *word = strtok_r(text, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (out->name && strncmp(word, "slots=", 6) == 0) {
            LS_TRY(read_slots(path, line, word, &out->slots));
            continue;
        }
        LS_TRY(check_name(path, line, word));
        if (!out->name) {
            out->name = ls_arena_strdup(arena, word);
        } else if (!out->address) {
            out->address = ls_arena_strdup(arena, word);
        } else {
            return ls_fail(
                LS_ERR_INVALID,
                "%s:%u: '%.60s' is one word more than a line may have (a line is: host [slots=N] [address])",
                path, line, word);
        }
    }
    out->address = out->address ? out->address : out->name;
    return LS_OK;
}

ls_status ls_hosts_file_read(ls_arena *arena, const char *path, ls_host_entry **hosts_out,
                             uint32_t *count_out)
{
    char *text = NULL, *rest = NULL;
    size_t bytes = 0;
    uint32_t count = 0;
    unsigned line = 0;
    LS_TRY(ls_file_read(arena, path, HOSTS_FILE_BYTES_MAX, &text, &bytes));
    ls_host_entry *hosts = ls_arena_new(arena, ls_host_entry, LS_COMM_SIZE_MAX);
    for (char *at = text; at && at < text + bytes; at = rest) {
        char *end = strchr(at, '\n');
        rest = end ? end + 1 : NULL;
        if (end) {
            *end = '\0';
        }
        ls_host_entry entry;
        LS_TRY(read_line(arena, path, ++line, at, &entry));
        if (!entry.name) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(hosts[i].name, entry.name) == 0) {
                return ls_fail(LS_ERR_INVALID,
                               "%s:%u: host %s is listed twice: list it once, with slots=N for N ranks", path,
                               line, entry.name);
            }
        }
        if (count == LS_COMM_SIZE_MAX) {
            return ls_fail(LS_ERR_INVALID, "%s:%u: the file lists more than %d hosts, which is the limit",
                           path, line, LS_COMM_SIZE_MAX);
        }
        entry.is_here = is_here(&entry);
        hosts[count++] = entry;
    }
    if (count == 0) {
        return ls_fail(LS_ERR_INVALID, "%s does not list any host (a line is: host [slots=N] [address])",
                       path);
    }
    *hosts_out = hosts;
    *count_out = count;
    return LS_OK;
}

/* ---- what this process is ---- */

/* The local address from which a packet to `host` would be sent. */
static ls_status find_own_address(ls_arena *arena, const char *host, const char **out)
{
    char address[300], own[64];
    const char *target = strchr(host, '@') ? strchr(host, '@') + 1 : host;
    snprintf(address, sizeof address, strchr(target, ':') ? "[%.250s]:9" : "%.250s:9", target);
    LS_TRY(ls_store_address_own(address, own, sizeof own));
    *out = ls_arena_strdup(arena, own);
    return LS_OK;
}

/* Gives out ranks in the order of the file, this host's first. */
static ls_status share_out(const ls_launch_options *options, ls_host_entry *hosts, uint32_t count,
                           ls_launch *launch, ls_workers_hosts *out, ls_host_entry *others)
{
    const char *path = options->hosts_file;
    const uint64_t asked = options->ranks;
    uint64_t slots = 0;
    const ls_host_entry *here = NULL;
    for (uint32_t i = 0; i < count; i++) {
        slots += hosts[i].slots;
        here = hosts[i].is_here && !here ? &hosts[i] : here;
    }
    if (!here) {
        return ls_fail(
            LS_ERR_INVALID,
            "none of the %u hosts in %s is this machine; the host on which 'train' runs must be listed",
            count, path);
    }
    if (asked > slots) {
        return ls_fail(
            LS_ERR_INVALID,
            "%" PRIu64 " ranks were asked for, but the hosts in %s have only %" PRIu64
            " slots (slots=N: the host may run N ranks): add hosts or slots, or ask for fewer ranks",
            asked, path, slots);
    }
    uint64_t left = asked ? asked : slots;
    launch->ranks = left;
    out->local_ranks = here->slots < left ? here->slots : (uint32_t)left;
    left -= out->local_ranks;
    for (uint32_t i = 0; i < count && left > 0; i++) {
        if (&hosts[i] != here) {
            ls_host_entry *other = &others[out->other_count++];
            *other = hosts[i];
            other->slots = other->slots < left ? other->slots : (uint32_t)left;
            left -= other->slots;
        }
    }
    return LS_OK;
}

/* ssh may know hosts by names that the resolver does not; any host that can be resolved will do. */
static ls_status find_reachable(ls_arena *arena, const ls_workers_hosts *hosts, const char **out)
{
    for (uint32_t i = 0; i < hosts->other_count; i++) {
        if (find_own_address(arena, hosts->others[i].address, out) == LS_OK) {
            return LS_OK;
        }
    }
    const char *last = ls_arena_strdup(arena, ls_error_text());
    return ls_fail(
        LS_ERR_INVALID,
        "cannot find the address under which the other hosts reach this one (%s): put their addresses after "
        "their names in the file of hosts, or give --coordinator HOST:PORT",
        last);
}

static ls_status use_hosts_file(ls_arena *arena, const ls_launch_options *options, ls_workers_hosts *hosts,
                                char *token, ls_launch *launch)
{
    ls_host_entry *all = NULL;
    uint32_t count = 0;
    LS_TRY(ls_hosts_file_read(arena, options->hosts_file, &all, &count));
    ls_host_entry *others = ls_arena_new(arena, ls_host_entry, count);
    LS_TRY(share_out(options, all, count, launch, hosts, others));
    if (options->local_ranks) {
        return ls_fail(LS_ERR_INVALID, "--local-ranks cannot be combined with --hosts: in the hosts file, "
                                       "slots=N sets the number of ranks of this host");
    }
    if (hosts->other_count == 0) {
        return LS_OK; /* only this host */
    }
    if (!token[0]) {
        LS_TRY(make_token(token));
    }
    hosts->others = others;
    if (options->coordinator && options->coordinator[0]) {
        char *listen = ls_arena_alloc(arena, LS_COMM_ADDRESS_BYTES);
        LS_TRY(ls_store_address_numeric(options->coordinator, listen, LS_COMM_ADDRESS_BYTES));
        hosts->listen = listen;
    } else {
        LS_TRY(find_reachable(arena, hosts, &hosts->reachable));
        hosts->listen =
            ls_arena_printf(arena, strchr(hosts->reachable, ':') ? "[%s]:0" : "%s:0", hosts->reachable);
    }
    launch->hosts = hosts;
    return LS_OK;
}

static ls_status listen_for_agents(ls_arena *arena, const ls_launch_options *options, ls_workers_hosts *hosts,
                                   ls_launch *launch)
{
    if (!options->ranks || !options->local_ranks || options->local_ranks >= options->ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "--coordinator needs --ranks N, and --local-ranks L for this host with L from 1 to N "
                       "- 1 (values given: %" PRIu64 " and %" PRIu64 ")",
                       options->ranks, options->local_ranks);
    }
    char *listen = ls_arena_alloc(arena, LS_COMM_ADDRESS_BYTES);
    LS_TRY(ls_store_address_numeric(options->coordinator, listen, LS_COMM_ADDRESS_BYTES));
    hosts->listen = listen;
    hosts->local_ranks = (uint32_t)options->local_ranks;
    launch->ranks = options->ranks;
    launch->hosts = hosts;
    return LS_OK;
}

/* The process with rank 0 trains; the first process of each other host is its agent; the rest
 * are spares. */
static ls_status follow_launcher(ls_arena *arena, const ls_launch_options *options, ls_workers_hosts *hosts,
                                 ls_launch *launch)
{
    ls_comm_options said;
    ls_launcher launcher = LS_LAUNCHER_NONE;
    uint32_t node = 0;
    LS_TRY(ls_environment_read(&said, &launcher, &node));
    if (launcher == LS_LAUNCHER_NONE || launcher == LS_LAUNCHER_LOCKSTEP || said.size == 1) {
        return LS_OK;
    }
    const uint64_t ranks = options->ranks ? options->ranks : said.size;
    if (ranks % said.size != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%s started %u processes, and %" PRIu64
                       " ranks cannot be divided evenly among them: choose a multiple "
                       "of %u",
                       ls_launcher_name(launcher), said.size, ranks, said.size);
    }
    const uint32_t local_ranks = (uint32_t)(ranks / said.size) * said.local_size;
    char *address = ls_arena_strdup(arena, said.coordinator);
    launch->ranks = ranks;
    if (said.rank == 0) {
        char *listen = ls_arena_alloc(arena, LS_COMM_ADDRESS_BYTES);
        LS_TRY(ls_store_address_numeric(address, listen, LS_COMM_ADDRESS_BYTES));
        hosts->listen = strncmp(listen, "127.", 4) == 0 && said.local_size < said.size
                            ? ls_arena_printf(arena, "0.0.0.0:%s", strrchr(listen, ':') + 1)
                            : listen;
        hosts->local_ranks = local_ranks;
        launch->hosts = hosts;
        return LS_OK;
    }
    launch->role = LS_LAUNCH_AGENT;
    launch->agent.coordinator = address;
    launch->agent.slots = local_ranks;
    /* When the launcher says nothing about hosts, every process is taken to be on the same one. */
    launch->agent.is_spare = said.local_rank > 0 || said.local_size == said.size;
    return LS_OK;
}

ls_status ls_launch_read(ls_arena *arena, const ls_launch_options *options, ls_launch *launch_out)
{
    ls_launch launch = {.role = LS_LAUNCH_TRAINER, .ranks = options->ranks, .agent.name = ""};
    ls_workers_hosts *hosts = ls_arena_new(arena, ls_workers_hosts, 1);
    char *token = ls_arena_alloc(arena, LS_COMM_TOKEN_BYTES);
    *hosts = (ls_workers_hosts){.token = token};
    launch.agent.token = token;
    LS_TRY(ls_token_read(options->token_file, token));
    if (options->hosts_file && options->hosts_file[0]) {
        LS_TRY(use_hosts_file(arena, options, hosts, token, &launch));
    } else if (options->coordinator && options->coordinator[0]) {
        LS_TRY(listen_for_agents(arena, options, hosts, &launch));
    } else if (options->local_ranks) {
        return ls_fail(LS_ERR_INVALID,
                       "--local-ranks needs --coordinator; for ranks on this host only, use --ranks N");
    } else {
        LS_TRY(follow_launcher(arena, options, hosts, &launch));
    }
    *launch_out = launch;
    return LS_OK;
}
