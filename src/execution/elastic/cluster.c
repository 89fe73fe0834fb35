// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/cluster_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/text.h"
#include "execution/diagnose/sight_wire.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_NS = 2 * 1000 * 1000 };
/* How fast clocks of two hosts are taken to run apart at most: more than any that is kept by NTP. */
static const double clock_drift = 500e-6;
static const uint64_t END_WAIT_NS = 6 * UINT64_C(1000000000);
/* When it is said what is waited for: the first time, and again. */
static const uint64_t SAY_NS = 2 * UINT64_C(1000000000), SAY_AGAIN_NS = 20 * UINT64_C(1000000000);

static ls_cluster_agent *find_agent(ls_cluster *cluster, uint64_t client)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        if (cluster->agents[i].used && cluster->agents[i].client == client) {
            return &cluster->agents[i];
        }
    }
    return NULL;
}

void ls_cluster_abort_all(ls_cluster *cluster, ls_status status, int32_t rank, const char *text)
{
    if (!cluster->aborted && !cluster->ending) {
        cluster->aborted = true;
        cluster->options.abort(cluster->options.context, status, rank, text);
    }
}

/* A mistake of one agent: it is told, and the run goes on waiting for a better one. */
static void refuse(ls_cluster *cluster, uint64_t client, const char *text)
{
    ls_store_server_refuse(cluster->server, client, text);
}

/* ---- orders ---- */

static void read_orders(ls_cluster *cluster)
{
    const ls_control *control = cluster->control;
    /* A gather is asked for after the grant it follows: read first, so that a gather never travels without its grant. */
    ls_cluster_orders now = {.kind = LS_CLUSTER_ORDERS, .gather = atomic_load(&control->gather)};
    now.epoch = cluster->epoch;
    now.until = atomic_load(&control->until);
    now.stop = atomic_load(&control->stop);
    now.quit = atomic_load(&control->quit);
    now.abort = atomic_load(&control->abort);
    if (now.abort) {
        now.abort_rank = atomic_load(&control->abort_rank);
        memcpy(now.abort_text, control->abort_text, sizeof now.abort_text);
    }
    if (memcmp(&now, &cluster->orders, sizeof now) != 0) {
        cluster->orders = now;
        cluster->orders_version++;
    }
}

static void send_orders(ls_cluster *cluster)
{
    read_orders(cluster);
    /* A sign of life. */
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    const bool beats = now - cluster->beat_ns >= LS_CLUSTER_BEAT_NS;
    cluster->beat_ns = beats ? now : cluster->beat_ns;
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && (beats || a->orders_sent != cluster->orders_version) &&
            ls_store_server_send(cluster->server, a->client, &cluster->orders, sizeof cluster->orders) == 0) {
            a->orders_sent = cluster->orders_version;
        }
    }
}

/* ---- hello ---- */

static bool is_same_program(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[500];
    if (hello->version == LS_CLUSTER_VERSION && hello->program == cluster->program) {
        return true;
    }
    snprintf(
        text, sizeof text,
        "host %s runs another lockstep: version %s, program %016llx; the coordinator is version %s, program "
        "%016llx. Put the same binary on all hosts",
        hello->name[0] ? hello->name : hello->host, hello->lockstep, (unsigned long long)hello->program,
        LS_VERSION, (unsigned long long)cluster->program);
    refuse(cluster, client, text);
    if (!cluster->running) {
        ls_cluster_abort_all(cluster, LS_ERR_MISMATCH, -1, text);
    }
    return false;
}

static void send_join(ls_cluster *cluster, const ls_cluster_agent *a)
{
    const ls_cluster_options *options = &cluster->options;
    const ls_control *control = cluster->control;
    const size_t bytes = sizeof(ls_cluster_join) + control->text_bytes;
    ls_cluster_join *join = calloc(1, bytes);
    LS_ASSERT(join && "out of memory for a message");
    *join = (ls_cluster_join){
        .kind = LS_CLUSTER_JOIN,
        .leaves = control->leaves,
        .ranks = control->ranks,
        .first_rank = a->first_rank,
        .local_ranks = a->count,
        .threads = options->threads,
        .epoch = cluster->epoch,
        .step = a->is_joining ? cluster->hosts[0].status.finished : options->step,
        .float_count = control->float_count,
        .frozen_floats = control->frozen_floats,
        .exchange_bytes = a->count ? options->exchange_bytes(options->context, a->count) : 0,
        .text_bytes = (uint32_t)control->text_bytes,
        .place = (uint32_t)(a - cluster->agents) + 1,
        .lease_ns = options->lease_ns,
        .is_late = a->is_joining,
        .replacements = options->max_replacements,
        .wait_ns = options->wait_ns,
        .run = cluster->run,
    };
    snprintf(join->run_dir, sizeof join->run_dir, "%s", cluster->run_dir);
    snprintf(join->folder, sizeof join->folder, "%s", cluster->folder);
    memcpy((char *)join + sizeof *join, options->segment->text, control->text_bytes);
    (void)ls_store_server_send(cluster->server, a->client, join, bytes); /* fails only when it has gone */
    free(join);
}

static void receive_hello(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *said)
{
    ls_cluster_hello hello = *said;
    LS_CLUSTER_CLOSE(hello.lockstep);
    LS_CLUSTER_CLOSE(hello.host);
    LS_CLUSTER_CLOSE(hello.name);
    if (find_agent(cluster, client)) {
        refuse(cluster, client, "an agent says hello once");
        return;
    }
    if (cluster->ending || !is_same_program(cluster, client, &hello)) {
        return;
    }
    if (hello.place > 0) {
        ls_cluster_take_back(cluster, client, &hello);
        return;
    }
    if (cluster->is_returning) {
        refuse(cluster, client, "the trainer has just come back: start this agent again in a few seconds");
        return;
    }
    ls_cluster_agent *a = ls_cluster_place(cluster, client, &hello);
    if (!a) {
        return;
    }
    ls_cluster_seat(cluster, a);
    a->client = client;
    a->heard_ns = ls_env_now_ns(cluster->options.env);
    snprintf(a->name, sizeof a->name, "%s", hello.name[0] ? hello.name : hello.host);
    if (!a->is_spare) {
        send_join(cluster, a);
    }
    send_orders(cluster);
}

/* ---- what agents say ---- */

static bool is_rank_of(const ls_cluster_agent *a, uint32_t rank)
{
    return rank >= a->first_rank && rank - a->first_rank < a->count;
}

/*
 * A message that left at sent_ns of the agent's clock came now: the difference of the clocks is at most as large as it says. The fastest one is
 * believed, so the error is the shortest time that messages take, and it is forgotten as fast as clocks run apart.
 */
static int64_t find_clock(const ls_cluster *cluster, ls_cluster_agent *a, uint64_t sent_ns)
{
    const uint64_t now_ns = ls_env_now_ns(cluster->options.env);
    const int64_t offset_ns = (int64_t)(now_ns - sent_ns);
    const uint64_t drift_ns = (uint64_t)(clock_drift * (double)(now_ns - a->clock_ns));
    const int64_t grown_ns = (int64_t)((uint64_t)a->clock_offset_ns + drift_ns);
    a->clock_offset_ns = a->clock_ns == 0 || offset_ns < grown_ns ? offset_ns : grown_ns;
    a->clock_ns = now_ns;
    return a->clock_offset_ns;
}

static bool receive_sights(ls_cluster *cluster, ls_cluster_agent *a, const void *data, size_t bytes)
{
    ls_cluster_sights head;
    uint32_t count = 0;
    memcpy(&head, data, sizeof head);
    if (ls_sights_decode((const char *)data + sizeof head, bytes - sizeof head, cluster->control->ranks,
                         head.taken_ns, cluster->sights, &count) != LS_OK) {
        return false;
    }
    const int64_t offset_ns = find_clock(cluster, a, head.taken_ns);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_rank_of(a, cluster->sights[i].rank)) {
            return false;
        }
        ls_sight_shift(&cluster->sights[i], offset_ns);
    }
    if (cluster->options.seen) {
        cluster->options.seen(cluster->options.context, cluster->sights, count);
    }
    return true;
}

static bool receive_stack(ls_cluster *cluster, const ls_cluster_agent *a, const void *data)
{
    ls_cluster_stack stack;
    memcpy(&stack, data, sizeof stack);
    if (!is_rank_of(a, stack.rank)) {
        return false;
    }
    ls_sight_clean(stack.text, sizeof stack.text, true);
    if (cluster->options.stack) {
        cluster->options.stack(cluster->options.context, stack.rank, stack.is_stack != 0, stack.text);
    }
    return true;
}

static bool send_to_agent_of(ls_cluster *cluster, uint32_t rank, const ls_cluster_ask *ask)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && !a->is_spare && is_rank_of(a, rank)) {
            return ls_store_server_send(cluster->server, a->client, ask, sizeof *ask) == 0;
        }
    }
    return false;
}

bool ls_cluster_ask_stack(ls_cluster *cluster, uint32_t rank, int32_t pid)
{
    const ls_cluster_ask ask = {.kind = LS_CLUSTER_ASK, .rank = rank, .pid = pid};
    return send_to_agent_of(cluster, rank, &ask);
}

bool ls_cluster_kill(ls_cluster *cluster, uint32_t rank, int32_t pid, const char *why)
{
    const ls_cluster_ask kill = {.kind = LS_CLUSTER_KILL, .rank = rank, .pid = pid};
    if (!cluster->running || cluster->aborted || cluster->ending) {
        return false;
    }
    const bool is_far = rank - cluster->control->first_rank >= cluster->control->local_ranks;
    if (!is_far && cluster->hosts[0].status.bound < 2) {
        return false;
    }
    cluster->killed_pid = pid;
    snprintf(cluster->killed_why, sizeof cluster->killed_why, "%s", why);
    if (is_far) {
        (void)send_to_agent_of(cluster, rank, &kill); /* without an agent the host as a whole is lost */
    }
    return true;
}

static bool receive_from(ls_cluster *cluster, ls_cluster_agent *a, const void *data, size_t bytes,
                         uint32_t kind)
{
    if (kind == LS_CLUSTER_SIGHTS && bytes >= sizeof(ls_cluster_sights)) {
        return receive_sights(cluster, a, data, bytes);
    }
    if (kind == LS_CLUSTER_STATUS && bytes == sizeof(ls_cluster_status)) {
        ls_cluster_status status;
        memcpy(&status, data, sizeof status);
        LS_CLUSTER_CLOSE(status.source);
        ls_cluster_receive_status(cluster, a, &status);
        a->has_returned = a->has_returned || cluster->is_returning;
        a->until = status.until;
        a->results_from = status.results_from;
        return true;
    }
    if (kind == LS_CLUSTER_RESULT && bytes == sizeof(ls_cluster_result)) {
        ls_cluster_result result;
        memcpy(&result, data, sizeof result);
        if (cluster->options.result && result.result.step >= cluster->options.heard) {
            cluster->options.result(cluster->options.context, &result.result);
        }
        return true;
    }
    if (kind == LS_CLUSTER_STACK && bytes == sizeof(ls_cluster_stack)) {
        return receive_stack(cluster, a, data);
    }
    if (kind == LS_CLUSTER_READY && bytes == sizeof(ls_cluster_ready)) {
        ls_cluster_ready ready;
        memcpy(&ready, data, sizeof ready);
        LS_CLUSTER_CLOSE(ready.hello.host);
        if (is_rank_of(a, ready.hello.rank) && cluster->is_returning) {
            ls_cluster_rank_lives(cluster, ready.hello.rank, ready.hello.pid, ready.has_part != 0);
        }
        if (is_rank_of(a, ready.hello.rank) && cluster->running) {
            ls_cluster_rank_came(cluster, a, &ready.hello);
            return true;
        }
        if (is_rank_of(a, ready.hello.rank)) {
            cluster->options.ready(cluster->options.context, &ready.hello);
            return true;
        }
    } else if (kind == LS_CLUSTER_LOST && bytes == sizeof(ls_cluster_lost)) {
        ls_cluster_lost lost;
        memcpy(&lost, data, sizeof lost);
        LS_CLUSTER_CLOSE(lost.end.doing);
        if (is_rank_of(a, lost.end.rank) && cluster->is_returning) {
            ls_cluster_rank_is_gone(cluster, lost.end.rank);
            return true;
        }
        if (is_rank_of(a, lost.end.rank) && cluster->running) {
            ls_cluster_far_rank_lost(cluster, a, &lost.end);
            return true;
        }
        if (is_rank_of(a, lost.end.rank)) {
            cluster->options.lost(cluster->options.context, a->name, &lost.end);
            return true;
        }
    } else if (kind == LS_CLUSTER_ABORT && bytes == sizeof(ls_cluster_abort)) {
        ls_cluster_abort reason;
        memcpy(&reason, data, sizeof reason);
        LS_CLUSTER_CLOSE(reason.text);
        if (a->is_joining) {
            ls_cluster_drop_joiner(cluster, a, reason.text);
            return true;
        }
        if (reason.status != LS_OK && reason.status <= LS_INTERRUPTED) {
            ls_cluster_abort_all(cluster, (ls_status)reason.status, reason.rank, reason.text);
            return true;
        }
    } else if (kind == LS_CLUSTER_ENDED && bytes == sizeof(ls_cluster_ended)) {
        a->ended = true;
        return true;
    }
    return false;
}

static void on_message(void *context, uint64_t client, const void *data, size_t bytes)
{
    ls_cluster *cluster = context;
    uint32_t kind = 0;
    if (bytes >= sizeof kind) {
        memcpy(&kind, data, sizeof kind);
    }
    if (kind == LS_CLUSTER_HELLO && bytes == sizeof(ls_cluster_hello)) {
        ls_cluster_hello hello;
        memcpy(&hello, data, sizeof hello);
        receive_hello(cluster, client, &hello);
        return;
    }
    ls_cluster_agent *a = find_agent(cluster, client);
    if (a && a->gone) {
        return; /* it was declared lost, and will hear that */
    }
    if (a) {
        a->heard_ns = ls_env_now_ns(cluster->options.env);
    }
    if (!a || !receive_from(cluster, a, data, bytes, kind)) {
        refuse(cluster, client, "a message that the coordinator does not take");
    }
}

static void on_left(void *context, uint64_t client)
{
    ls_cluster *cluster = context;
    ls_cluster_agent *a = find_agent(cluster, client);
    char text[500];
    if (!a || a->gone) {
        return;
    }
    if (a->ended || a->is_spare || cluster->ending) {
        a->gone = true;
        return;
    }
    if (cluster->is_returning) {
        ls_cluster_unseat(cluster, a);
        return;
    }
    if (a->is_joining) {
        ls_cluster_drop_joiner(cluster, a, "the link to its agent ended");
        return;
    }
    snprintf(text, sizeof text, "host %s (%u rank%s, from rank %u on) is gone: the link to its agent ended",
             a->name, a->count, a->count == 1 ? "" : "s", a->first_rank);
    ls_cluster_host_lost(cluster, a, text);
}

/* ---- waiting for agents ---- */

static void look_at_starters(ls_cluster *cluster)
{
    char words[512], text[900];
    for (uint32_t i = 0; cluster->options.start_failed && i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used && cluster->options.start_failed(cluster->options.context, i, words)) {
            snprintf(text, sizeof text, "no agent on host %s: %s", cluster->options.hosts[i].name, words);
            ls_cluster_abort_all(cluster, LS_ERR_FAILED, -1, text);
        }
    }
}

static bool all_came(const ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used) {
            return false;
        }
    }
    return cluster->given == cluster->control->ranks;
}

/* The hosts of the list that have no agent yet: "host1, host2". */
static void append_missing_hosts(const ls_cluster *cluster, ls_text *text)
{
    const char *between = "";
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used) {
            ls_text_printf(text, "%s%s", between, cluster->options.hosts[i].name);
            between = ", ";
        }
    }
}

/* What to type on the other hosts. */
static void append_agent_line(const ls_cluster *cluster, ls_text *text)
{
    const char *served = ls_cluster_address(cluster);
    char host[256] = "";
    if (strncmp(served, "0.0.0.0:", 8) == 0 && gethostname(host, sizeof host - 1) == 0) {
        ls_text_printf(text, "start 'lockstep agent --coordinator %s%s' on the other hosts", host,
                       strrchr(served, ':'));
    } else {
        ls_text_printf(text, "start 'lockstep agent --coordinator %s' on the other hosts", served);
    }
}

static void say_missing(ls_cluster *cluster, uint64_t now)
{
    ls_text text = {0};
    if (cluster->options.hosts) {
        ls_text_append(&text, "the agents of ");
        append_missing_hosts(cluster, &text);
    } else {
        ls_text_printf(&text, "ranks %u..%u: ", cluster->given, cluster->control->ranks - 1);
        append_agent_line(cluster, &text);
    }
    ls_log_warn("waiting for %s (%.0f s left)", ls_text_string(&text),
                1e-9 * (double)(cluster->start_deadline_ns - now));
    ls_text_release(&text);
    cluster->say_ns = now + SAY_AGAIN_NS;
}

static void name_missing(ls_cluster *cluster)
{
    ls_text text = {0};
    const double waited_s = 1e-9 * (double)cluster->options.start_timeout_ns;
    if (cluster->options.hosts) {
        ls_text_append(&text, "no agent came from host ");
        append_missing_hosts(cluster, &text);
        ls_text_printf(&text, " within %.0f s: can it reach %s, and does lockstep run there?", waited_s,
                       ls_cluster_address(cluster));
    } else {
        ls_text_printf(&text, "%u of %u ranks (from rank %u on) have no host after %.0f s: ",
                       cluster->control->ranks - cluster->given, cluster->control->ranks, cluster->given,
                       waited_s);
        append_agent_line(cluster, &text);
        ls_text_append(&text, ", with the same LOCKSTEP_TOKEN");
    }
    ls_cluster_abort_all(cluster, LS_ERR_TIMEOUT, -1, ls_text_string(&text));
    ls_text_release(&text);
}

/* ---- the end ---- */

static bool all_ended(const ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && !a->ended) {
            return false;
        }
    }
    return true;
}

static void tick(void *context)
{
    ls_cluster *cluster = context;
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    cluster->timer = ls_env_timer_set(cluster->options.env, TICK_NS, tick, cluster);
    send_orders(cluster);
    ls_cluster_return_tick(cluster);
    ls_cluster_reform_tick(cluster);
    if (!cluster->running && !cluster->is_returning && !cluster->ending && !all_came(cluster)) {
        look_at_starters(cluster);
        if (now >= cluster->start_deadline_ns) {
            name_missing(cluster);
        } else if (now >= cluster->say_ns && !cluster->aborted) {
            say_missing(cluster, now);
        }
    }
    if (cluster->ending && !cluster->told_ended && (all_ended(cluster) || now >= cluster->end_deadline_ns)) {
        cluster->told_ended = true;
        ls_cluster_end_log(cluster, cluster->options.ended);
    }
}

void ls_cluster_end(ls_cluster *cluster)
{
    if (!cluster->ending) {
        cluster->ending = true;
        cluster->end_deadline_ns = ls_env_now_ns(cluster->options.env) + END_WAIT_NS;
    }
}

/* ---- life ---- */

/* Agents of the list have their places and ranks from the beginning. */
static void place_hosts(ls_cluster *cluster)
{
    cluster->given = cluster->control->first_rank + cluster->control->local_ranks;
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        ls_cluster_agent *a = &cluster->agents[cluster->agent_count++];
        a->first_rank = cluster->given;
        a->count = cluster->options.hosts[i].slots;
        cluster->given += a->count;
    }
    LS_ASSERT(cluster->given <= cluster->control->ranks);
}

static ls_status find_folders(ls_cluster *cluster)
{
    char run_dir[PATH_MAX];
    if (!getcwd(cluster->folder, sizeof cluster->folder) || !realpath(cluster->options.run_dir, run_dir) ||
        strlen(run_dir) >= sizeof cluster->run_dir) {
        return ls_fail(
            LS_ERR_INVALID,
            "over several hosts the current folder and the run directory %s exist, with paths of at most %d "
            "characters",
            cluster->options.run_dir, LS_CLUSTER_PATH_BYTES - 1);
    }
    memcpy(cluster->run_dir, run_dir, strlen(run_dir) + 1);
    return LS_OK;
}

ls_status ls_cluster_open(const ls_cluster_options *options, ls_cluster **cluster_out)
{
    LS_ASSERT(options->host_count < LS_CLUSTER_AGENTS_MAX);
    const ls_control *control = options->segment->control;
    if (control->text_bytes > LS_CLUSTER_TEXT_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "the run file has %llu bytes; over several hosts at most %d work",
                       (unsigned long long)control->text_bytes, LS_CLUSTER_TEXT_BYTES_MAX);
    }
    ls_cluster *cluster = calloc(1, sizeof *cluster);
    ls_cluster_agent *agents = calloc(LS_CLUSTER_AGENTS_MAX, sizeof *agents);
    ls_sight *sights = calloc(LS_SIGHTS_MAX, sizeof *sights);
    ls_cluster_comeback *comebacks = calloc(options->host_count + 1, sizeof *comebacks);
    if (!cluster || !agents || !sights || !comebacks) {
        free(cluster);
        free(agents);
        free(sights);
        free(comebacks);
        return ls_fail(LS_ERR_MEMORY, "no memory for the agents of other hosts");
    }
    cluster->options = *options;
    cluster->control = options->segment->control;
    cluster->agents = agents;
    cluster->sights = sights;
    cluster->told = options->is_fresh ? options->heard : UINT64_MAX;
    cluster->comebacks = comebacks;
    ls_status status = ls_program_hash(&cluster->program);
    const ls_store_server_options server = {.address = options->listen,
                                            .token = options->token,
                                            .epoch = control->epoch,
                                            .other = on_message,
                                            .left = on_left,
                                            .context = cluster};
    if (status == LS_OK) {
        status = ls_cluster_reform_init(cluster);
    }
    if (status == LS_OK) {
        status = find_folders(cluster);
    }
    if (status == LS_OK) {
        status = ls_store_server_open(options->env, &server, &cluster->server);
    }
    if (status == LS_OK) {
        place_hosts(cluster);
        status = ls_cluster_return_init(cluster);
    }
    if (status != LS_OK) {
        ls_store_server_close(cluster->server);
        free(cluster->logged);
        ls_cluster_reform_release(cluster);
        free(agents);
        free(sights);
        free(comebacks);
        free(cluster);
        return status;
    }
    cluster->start_deadline_ns = ls_env_now_ns(options->env) + options->start_timeout_ns;
    cluster->say_ns = ls_env_now_ns(options->env) + SAY_NS;
    cluster->timer = ls_env_timer_set(options->env, TICK_NS, tick, cluster);
    *cluster_out = cluster;
    return LS_OK;
}

void ls_cluster_close(ls_cluster *cluster)
{
    if (!cluster) {
        return;
    }
    ls_env_timer_cancel(cluster->options.env, cluster->timer);
    ls_store_server_close(cluster->server);
    ls_cluster_reform_release(cluster);
    free(cluster->logged);
    free(cluster->agents);
    free(cluster->sights);
    free(cluster->comebacks);
    free(cluster);
}

const char *ls_cluster_address(const ls_cluster *cluster)
{
    return ls_store_server_address(cluster->server);
}
