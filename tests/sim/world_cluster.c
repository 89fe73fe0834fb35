// SPDX-License-Identifier: Apache-2.0
/*
 * A run on several hosts: cluster, agents and their host sides, with puppets in place of ranks.
 * Hosts crash, ranks die, connections are cut, several at once, also in the middle of a recovery;
 * agents are started again, and may be lost again while they join. In other seeds the trainer dies
 * and another one takes over, or the run has local steps: hosts are apart for a round. What the
 * state is, cluster_puppets.h says.
 *
 * Safety: the state is that of an undisturbed run after each step on each host; no host begins a
 * step whose state it does not have; a part of a cut is computed on one host; no cut begins before
 * a step whose result the trainer has seen, unless all return to a checkpoint; without that, a cut
 * of a run with local steps begins with a round. Liveness: in the end all steps are done, and where
 * hosts come back all ranks have a part again; or so many were lost together that it is impossible.
 */
#include "cluster_puppets.h"

/* ---- the trainer ---- */

static void on_ready(world *w)
{
    if (!w->running && ++w->ready == w->ranks) {
        w->newest = 1;
        ls_cluster_run(w->cluster);
        w->running = true;
        w->cuts[1] = (ls_cut){.epoch = 1, .parts = w->ranks};
        for (uint32_t h = 0; h < w->host_count; h++) {
            w->cuts[1].hosts[w->cuts[1].host_count++] =
                (ls_cut_host){.host = (uint16_t)h,
                              .first_part = (uint16_t)w->first[h],
                              .part_count = (uint16_t)w->local_ranks[h]};
        }
    }
}

static void local_ready(void *context, uint32_t rank)
{
    world *w = context;
    SIM_CHECK(w->run, ls_cluster_rank_ready(w->cluster, rank));
    on_ready(w);
}

static void far_ready(void *context, const ls_preflight_member *hello)
{
    (void)hello;
    on_ready(context);
}

static void local_lost(void *context, const ls_rank_end *end)
{
    world *w = context;
    if (w->running) {
        ls_cluster_rank_lost(w->cluster, end);
    }
}

static void far_lost(void *context, const char *host, const ls_rank_end *end)
{
    (void)host;
    (void)end;
    world *w = context;
    w->aborted = true; /* before all were ready */
}

static void on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    world *w = context;
    w->aborted = true;
    snprintf(w->why, sizeof w->why, "%s", text);
    sim_event(w->run, "abort: %s", text);
    ls_control_abort(w->machines[0].segment.control, status, rank, text);
}

static void local_ended(void *context)
{
    ls_cluster_end(((world *)context)->cluster);
}

static void all_ended(void *context)
{
    ((world *)context)->ended = true;
}

static uint64_t exchange_bytes(void *context, uint32_t local_ranks)
{
    (void)context;
    (void)local_ranks;
    return 1 << 16;
}

/* A cut when it is formed; the first FORM on the wire. */
static void on_event(void *context, const char *name, json_t *fields)
{
    world *w = context;
    sim_event(w->run, "%s epoch %lld step %lld", name,
              (long long)json_integer_value(json_object_get(fields, "epoch")),
              (long long)json_integer_value(json_object_get(fields, "step")));
    json_decref(fields);
}

void __real_ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves);
void __wrap_ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves);

void __wrap_ls_host_side_form(ls_host_side *side, const ls_cut *cut, const ls_cut *held, bool moves)
{
    world *w = the_world;
    if (w && side->host_index == 0) {
        SIM_CHECK(w->run, cut->epoch < CUTS && w->cuts[cut->epoch].epoch == 0);
        const bool returned = w->restored == cut->epoch, redoes = cut->step < w->redo_until;
        w->redo_until = returned ? w->committed : redoes ? w->redo_until : 0;
        SIM_CHECK(w->run, !returned || cut->step == w->restored_step);
        SIM_CHECK(w->run, returned || redoes || cut->step >= w->committed);
        SIM_CHECK(w->run, returned || w->local.steps == 0 ||
                              cut->step % ls_local_turns(&w->local, w->local.steps) == 0);
        w->cuts[cut->epoch] = *cut;
        w->formed++;
        w->newest = cut->epoch;
    }
    __real_ls_host_side_form(side, cut, held, moves && !seams_forget_move(cut, held));
}

/* All ranks have a part, as far as they come back. */
static bool is_whole(const world *w)
{
    return w->comebacks == NEVER || w->cuts[w->newest].parts == w->ranks;
}

static bool start_failed(void *context, uint32_t host, char text_out[512])
{
    const world *w = context;
    snprintf(text_out, 512, "it has ended");
    return w->agent_env[host + 1] && !w->wanted[host + 1] && !ls_sim_is_running(w->agent_env[host + 1]);
}

static void start_again(void *context, uint32_t host)
{
    ((world *)context)->wanted[host + 1] = true;
}

static ls_status start_rank(void *context, uint32_t local)
{
    return ls_agent_start_rank(((world *)context)->agent, local);
}

/* The trainer comes to it sooner or later. */
static void bring_checkpoint(void *context)
{
    world *w = context;
    const ls_control *control = w->machines[0].segment.control;
    if (w->restored == w->restore_asked) {
        return; /* asked twice, for two losses */
    }
    for (uint32_t part = 0; part < control->team.local_parts; part++) {
        const uint32_t local = control->team.holder[part];
        SIM_CHECK(w->run, !ls_sim_is_running(w->rank_env[0][local]) || ls_control_is_parked(control, local));
    }
    machine_of(w, 0)->state = *state_after(w, w->saved);
    w->restored = w->restore_asked;
    w->restored_step = w->saved;
    sim_event(w->run, "the checkpoint of step %llu is here", (unsigned long long)w->saved);
}

static bool restore(void *context, uint64_t epoch, uint64_t *step_out)
{
    world *w = context;
    *step_out = w->restored_step;
    if (w->restored != epoch && w->restore_asked != epoch) {
        w->restore_asked = epoch;
        ls_env_timer_set(w->trainer, ls_sim_random_u64(w->run->sim) % (50 * SIM_MS), bring_checkpoint, w);
    }
    return w->restored == epoch;
}

/* The state is saved between two steps of the run. */
static void save(world *w)
{
    const uint64_t turns = w->local.steps > 0 ? w->local.workers : 1;
    uint64_t step = w->committed / turns / w->every * w->every;
    while (ls_local_turns(&w->local, step) > w->committed) {
        step--;
    }
    const uint64_t saved = ls_local_turns(&w->local, step);
    w->saved = saved > w->saved ? saved : w->saved;
}

static void trainer_tick(void *context)
{
    world *w = context;
    ls_control *control = w->machines[0].segment.control;
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const ls_rank_slot *slot = ls_segment_slot(&w->machines[0].segment, local);
        const uint64_t finished = atomic_load(&slot->finished);
        w->committed = finished > w->committed ? finished : w->committed;
    }
    save(w);
    if (w->running && (w->committed < STEPS || !is_whole(w))) {
        ls_control_grant(control, w->committed + 4);
    } else if (w->running) {
        ls_agent_end(w->agent);
    }
    ls_env_timer_set(w->trainer, 2 * SIM_MS, trainer_tick, w);
}

/* Nothing: its hosts are there, and steps are granted as before. */
static void on_returned(void *context)
{
    sim_event(((world *)context)->run, "the hosts are with the new trainer");
}

static void open_cluster(world *w, const ls_log_state *left)
{
    static const char *const names[] = {"host1", "host2", "host3", "host4"};
    static ls_cluster_host others[HOSTS];
    for (uint32_t i = 0; i + 1 < w->host_count; i++) {
        others[i] = (ls_cluster_host){.name = names[i], .slots = w->local_ranks[i + 1]};
    }
    const ls_cluster_options options = {
        .env = w->trainer,
        .hosts = w->comebacks != NEVER ? others : NULL,
        .host_count = w->comebacks != NEVER ? w->host_count - 1 : 0,
        .start_failed = start_failed,
        .start_again = w->comebacks == BY_TRAINER ? start_again : NULL,
        .listen = address,
        .token = token,
        .segment = &w->machines[0].segment,
        .threads = 1,
        .run_dir = ".",
        .start_timeout_ns = 5 * SIM_S,
        .context = w,
        .exchange_bytes = exchange_bytes,
        .ready = far_ready,
        .lost = far_lost,
        .abort = on_abort,
        .lease_ns = SIM_S,
        .restore = w->comebacks != NEVER ? restore : NULL,
        .settings = {.parts_max = w->cell_count / w->crew * w->crew,
                     .round = w->local.steps > 0 ? ls_local_turns(&w->local, w->local.steps) : 0,
                     .crew = w->crew,
                     .stage_ranks = w->stage_ranks,
                     .min_ranks = 1,
                     .zero = w->zero,
                     .shadow = w->shadow},
        .event = on_event,
        .wait_ns = w->comebacks == NEVER ? 20 * SIM_S : 0,
        .log_folder = w->comebacks == NEVER ? "." : NULL,
        .identity = "sim",
        .left = left,
        .returned = on_returned,
        .start = start_rank,
        .max_replacements = w->comebacks != NEVER ? 16 : 0,
        .ended = all_ended,
    };
    SIM_CHECK(w->run, ls_cluster_open(&options, &w->cluster) == LS_OK);
    w->clusters[w->trainer_count] = w->cluster;
}

static ls_agent_options own_agent(world *w)
{
    static const char *rank_argv[] = {"rank", "--segment", NULL, "--rank", NULL};
    static char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", w->machines[0].fd);
    rank_argv[2] = path;
    return (ls_agent_options){.env = w->trainer,
                              .segment = &w->machines[0].segment,
                              .argv = rank_argv,
                              .context = w,
                              .ready = local_ready,
                              .lost = local_lost,
                              .ended = local_ended};
}

static void trainer_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    w->trainer = env;
    open_cluster(w, NULL);
    const ls_agent_options options = own_agent(w);
    SIM_CHECK(w->run, ls_agent_start(&options, &w->agent) == LS_OK);
    w->trainer_agents[w->trainer_count++] = w->agent;
    trainer_tick(w);
}

/* Takes over from a trainer that died, as workers_service.c does. */
static void take_over(world *w)
{
    ls_control *control = w->machines[0].segment.control;
    ls_log_read(w->log.data, w->log.bytes, &w->left);
    SIM_CHECK(w->run, w->left.cuts.newest.parts > 0);
    open_cluster(w, &w->left);
    const ls_agent_options options = own_agent(w);
    SIM_CHECK(w->run, ls_agent_create(&options, &w->agent) == LS_OK);
    w->trainer_agents[w->trainer_count++] = w->agent;
    ls_control_mend_team(control);
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        SIM_CHECK(w->run, ls_agent_adopt_rank(w->agent, local));
        SIM_CHECK(w->run, ls_cluster_rank_ready(w->cluster, local));
    }
    trainer_tick(w);
}

static void read_log(void *context, int64_t result)
{
    world *w = context;
    SIM_CHECK(w->run, result >= 0);
    ls_text_append_bytes(&w->log, w->log_bytes, (size_t)result);
    if (result == 0) {
        take_over(w);
    } else {
        ls_env_disk_read(w->trainer, w->log_file, w->log_bytes, sizeof w->log_bytes, w->log.bytes, read_log,
                         w);
    }
}

static void log_is_open(void *context, int64_t result)
{
    world *w = context;
    w->log_file = result;
    SIM_CHECK(w->run, result >= 0);
    ls_env_disk_read(w->trainer, result, w->log_bytes, sizeof w->log_bytes, 0, read_log, w);
}

static void next_trainer_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    w->trainer = env;
    ls_text_clear(&w->log);
    ls_env_disk_open(env, "./coordinator.log", LS_ENV_READ, log_is_open, w);
}

typedef struct agent_start {
    world *w;
    uint32_t host;
} agent_start;

static void agent_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    const agent_start *start = context;
    world *w = start->w;
    static char names[HOSTS][16];
    snprintf(names[start->host], sizeof names[0], "host%u", start->host);
    const ls_host_agent_options options = {.coordinator = address,
                                           .token = token,
                                           .name = w->comebacks != NEVER ? names[start->host] : "",
                                           .slots = w->local_ranks[start->host],
                                           .timeout_s = 10,
                                           .program = "rank",
                                           .no_watch = true};
    w->agent_env[start->host] = env;
    SIM_CHECK(w->run, ls_host_agent_open(env, &options, &w->agents[start->host]) == LS_OK);
}

/* ---- the world ---- */

/* One rank on each host, and a worker for each of them. */
static void make_rounds(world *w)
{
    const uint32_t steps = (uint32_t)sim_draw(w->run, "round", 1, 4);
    const uint32_t workers = w->host_count + (uint32_t)sim_draw(w->run, "workers", 0, 3);
    const uint64_t delay = sim_draw(w->run, "delay", 0, 3) % steps;
    w->every = sim_draw(w->run, "every", 1, 12);
    w->cell_count = CELLS;
    if (w->comebacks != NEVER && sim_draw(w->run, "apart", 0, 1) == 1) {
        w->local = (ls_local){.steps = steps, .workers = workers, .fragments = 1, .delay = delay};
        w->cell_count = workers;
        w->zero = 1;
        w->shadow = false;
        w->ranks = w->host_count;
        for (uint32_t h = 0; h < w->host_count; h++) {
            w->local_ranks[h] = 1;
        }
    }
}

/* In every second seed ranks divide the model: whole crews in all, and hosts with whole stages. */
static void make_crews(world *w)
{
    const bool divides = sim_draw(w->run, "divides", 0, 1) == 1 && w->local.steps == 0;
    w->crew = !divides ? 1 : (uint32_t)sim_draw(w->run, "crew", 2, 3);
    const bool shares = sim_draw(w->run, "shares", 0, 1) == 1;
    for (uint32_t h = 0; h < w->host_count && w->ranks % w->crew != 0; h++) {
        w->ranks += LOCAL_MAX - w->local_ranks[h];
        w->local_ranks[h] = LOCAL_MAX;
    }
    w->crew = w->ranks % w->crew == 0 ? w->crew : 1;
    bool are_pairs = w->crew == 2 && shares;
    for (uint32_t h = 0; h < w->host_count; h++) {
        are_pairs = are_pairs && w->local_ranks[h] == 2;
    }
    w->stage_ranks = are_pairs ? 2 : 1;
}

static void make_hosts(world *w)
{
    sim_run *run = w->run;
    w->host_count = (uint32_t)sim_draw(run, "hosts", 2, HOSTS);
    w->zero = (uint32_t)sim_draw(run, "zero", 0, 3);
    w->shadow = w->zero > 0;
    w->dies = sim_draw_fault(run, "trainer", SIM_FAULT_KILL, 50);
    w->comebacks = w->dies ? NEVER : sim_draw(run, "comebacks", NEVER, BY_HAND);
    for (uint32_t h = 0; h < w->host_count; h++) {
        char name[16];
        snprintf(name, sizeof name, "local%u", h);
        w->local_ranks[h] = (uint32_t)sim_draw(run, name, 1, LOCAL_MAX);
        w->ranks += w->local_ranks[h];
        snprintf(name, sizeof name, "host%u", h);
        w->hosts[h] = ls_sim_host_add(run->sim, name);
    }
    make_rounds(w);
    make_crews(w);
    for (uint32_t h = 1; h < w->host_count; h++) {
        w->first[h] = w->first[h - 1] + w->local_ranks[h - 1];
    }
    memset(w->computed_on, 0xff, sizeof w->computed_on);
    const ls_segment_plan plan = {.float_count = 16,
                                  .exchange_bytes = 1 << 16,
                                  .leaves = w->cell_count,
                                  .crew = w->crew,
                                  .ranks = w->ranks,
                                  .local_ranks = w->local_ranks[0],
                                  .epoch = 1,
                                  .text = "",
                                  .text_bytes = 0};
    SIM_CHECK(run, ls_segment_create(&plan, &w->machines[0].segment) == LS_OK);
    ls_segment_begin_at(&w->machines[0].segment, 0);
    w->machines[0].fd = w->machines[0].segment.fd;
    w->machine_count = 1;
}

static uint32_t some_host(world *w, uint32_t from)
{
    return from + (uint32_t)(ls_sim_random_u64(w->run->sim) % (w->host_count - from));
}

static void crash_host(world *w, uint32_t host)
{
    machine *m = machine_of(w, host);
    if (m && !m->is_dead) {
        sim_event(w->run, "host %u crashes", host);
        m->is_dead = true;
        w->lost++;
        ls_sim_host_crash(w->run->sim, w->hosts[host]);
    }
}

static void cut_host(world *w, uint32_t host, bool cut)
{
    sim_event(w->run, "host %u is %s", host, cut ? "cut off" : "joined again");
    w->cut[host] = cut;
    for (uint32_t h = 0; h < w->host_count; h++) {
        if (h != host) {
            ls_sim_cut(w->run->sim, w->hosts[host], w->hosts[h], cut);
        }
    }
}

static void kill_rank(world *w, uint32_t host, uint32_t local)
{
    ls_env *env = w->rank_env[host][local];
    if (env && ls_sim_is_running(env)) {
        sim_event(w->run, "rank %u of host %u is killed", local, host);
        ls_sim_signal(env, SIGKILL);
    }
}

/* What was there goes first. */
static void start_host(world *w, uint32_t host)
{
    static agent_start starts[HOSTS];
    machine *m = machine_of(w, host);
    if (w->gone_count == COMEBACKS_MAX) {
        return;
    }
    sim_event(w->run, "host %u is started again", host);
    if (ls_sim_is_running(w->agent_env[host])) {
        ls_sim_host_crash(w->run->sim, w->hosts[host]);
    }
    w->gone[w->gone_count++] = w->agents[host];
    m->is_dead = true;
    memset(w->rank_env[host], 0, sizeof w->rank_env[host]);
    starts[host] = (agent_start){w, host};
    ls_sim_start(w->run->sim, w->hosts[host], agent_program, &starts[host]);
}

/* Agents that are gone are started again: by hand, whether the coordinator has noticed that or
 * not. */
static void come_back(world *w)
{
    for (uint32_t host = 1; host < w->host_count && !w->ended; host++) {
        const bool by_hand = w->comebacks == BY_HAND && !ls_sim_is_running(w->agent_env[host]);
        if (by_hand || w->wanted[host]) {
            w->wanted[host] = false;
            start_host(w, host);
        }
    }
}

static void run_until(world *w, uint64_t ns)
{
    sim_until(w->run, ns, 3000000, NULL, NULL);
}

static void run_for(world *w, uint64_t ns)
{
    run_until(w, ls_sim_now_ns(w->run->sim) + ns);
}

/* It may be reading the log, or only some of its hosts have returned. Not at the end: what is
 * not saved is not checked. */
static void change_trainer(world *w)
{
    const ls_control *control = w->machines[0].segment.control;
    if (w->trainer_count == TRAINERS || !ls_sim_is_running(w->trainer) || w->aborted || w->ended ||
        atomic_load(&control->quit) != 0) {
        return;
    }
    sim_event(w->run, "the trainer dies");
    ls_sim_signal(w->trainer, SIGKILL);
    run_for(w, ls_sim_random_u64(w->run->sim) % (2 * SIM_S));
    sim_event(w->run, "another trainer");
    ls_sim_start(w->run->sim, w->hosts[0], next_trainer_program, w);
}

/* Shortly after a new cut, if there is one: its messages are on their way to the hosts and to
 * the disk. */
static void change_trainer_in_reform(world *w)
{
    const uint32_t formed = w->formed;
    for (uint32_t i = 0; i < 3000 && w->formed == formed; i++) {
        run_for(w, SIM_MS);
    }
    run_for(w, ls_sim_random_u64(w->run->sim) % (6 * SIM_MS));
    change_trainer(w);
}

/* In the end everything is as it should be, or it is impossible. */
static void calm_down(world *w)
{
    for (int i = 0; i < 200 && !w->ended; i++) {
        run_until(w, ls_sim_now_ns(w->run->sim) + 150 * SIM_MS);
        come_back(w);
    }
}

/* One thing fails, or a host comes back. */
static void hurt(world *w, uint32_t host, bool crashes, bool cuts, bool kills)
{
    switch (ls_sim_random_u64(w->run->sim) % (w->dies ? 2 : 4)) {
    case 0:
        if (crashes && host > 0) {
            crash_host(w, host);
        }
        break;
    case 1:
        if (cuts && host > 0 && !w->cut[host]) {
            cut_host(w, host, true);
            run_until(w, ls_sim_now_ns(w->run->sim) + ls_sim_random_u64(w->run->sim) % (2 * SIM_S));
            cut_host(w, host, false);
        }
        break;
    case 2:
        if (kills) {
            kill_rank(w, host, (uint32_t)(ls_sim_random_u64(w->run->sim) % w->local_ranks[host]));
        }
        break;
    default:
        come_back(w);
        break;
    }
}

/* What may end a run: a host was lost together with its shadow, or the last rank beside the
 * trainer; or a host without which no crew is complete. */
static void check_reason(const world *w)
{
    const bool alone = strstr(w->why, "no rank is left on the trainer's host") != NULL;
    const bool nowhere = strstr(w->why, "shadow") != NULL && w->zero > 0 && w->comebacks == NEVER;
    const bool apart = w->crew > 1 && (strstr(w->why, "divide the model") != NULL);
    if (!alone && !nowhere && !apart) {
        sim_fail(w->run, "the run ended: %s", w->why);
    }
}

/* For a person who investigates why it got no further. */
static void tell_where(const world *w)
{
    for (uint32_t i = 0; i < w->machine_count; i++) {
        const machine *m = &w->machines[i];
        const ls_control *c = m->segment.control;
        sim_event(w->run, "host %u%s: team %llu cut %llu fence %llu hard %u limit %llu held %llu until %llu",
                  m->host, m->is_dead ? " (dead)" : "", (unsigned long long)c->team.epoch,
                  (unsigned long long)c->team.cut, (unsigned long long)c->fence, c->hard,
                  (unsigned long long)c->limit, (unsigned long long)c->held, (unsigned long long)c->until);
        for (uint32_t k = 0; k < c->team.local_parts; k++) {
            sim_event(w->run, "  part %u: entered %llu done %llu; rank parked %llu finished %llu",
                      c->team.first_part + k, (unsigned long long)c->parts[k].entered,
                      (unsigned long long)c->parts[k].done,
                      (unsigned long long)c->slots[c->team.holder[k]].parked,
                      (unsigned long long)c->slots[c->team.holder[k]].finished);
        }
    }
}

static void run_world(sim_run *run)
{
    static const ls_sim_settings plain;
    static agent_start starts[HOSTS];
    ls_sim_settings settings = plain;
    settings.seed = run->seed;
    sim_create(run, &settings);
    world *w = calloc(1, sizeof *w);
    the_world = w;
    w->run = run;
    w->after = calloc(TURNS_MAX, sizeof *w->after);
    seams_break(run->mutation);
    make_hosts(w);
    ls_sim_program_add(run->sim, "rank", puppet_program, w);
    ls_sim_start(run->sim, w->hosts[0], trainer_program, w);
    for (uint32_t h = 1; h < w->host_count; h++) {
        starts[h] = (agent_start){w, h};
        ls_sim_start(run->sim, w->hosts[h], agent_program, &starts[h]);
        /* hosts get their ranks in the order in which agents connect */
        run_until(w, ls_sim_now_ns(run->sim) + 20 * SIM_MS);
    }
    run_until(w, ls_sim_now_ns(run->sim) + 100 * SIM_MS);
    SIM_CHECK(run, w->running);
    const bool crashes = sim_draw_fault(run, "crashes", SIM_FAULT_POWER, 70);
    const bool cuts = sim_draw_fault(run, "cuts", SIM_FAULT_CUT, 40);
    const bool kills = sim_draw_fault(run, "kills", SIM_FAULT_KILL, 50) && !w->dies;
    const uint64_t faults = sim_draw(run, "faults", 0, 6), apart_ms = sim_draw(run, "apart_ms", 1, 400);
    run_for(w, 100 * SIM_MS); /* the log is there */
    for (uint64_t i = 0; i < faults; i++) {
        if (w->dies && ls_sim_random_u64(run->sim) % 2) {
            run_for(w, ls_sim_random_u64(run->sim) % (apart_ms * SIM_MS));
            change_trainer(w);
        }
        run_until(w, ls_sim_now_ns(run->sim) + ls_sim_random_u64(run->sim) % (apart_ms * SIM_MS));
        const uint32_t lost = w->lost;
        hurt(w, some_host(w, w->dies ? 1 : 0), crashes, cuts, kills);
        if (w->lost != lost && w->dies && ls_sim_random_u64(run->sim) % 2) {
            change_trainer_in_reform(w);
        }
    }
    calm_down(w);
    if (!w->ended) {
        tell_where(w);
    }
    SIM_CHECK(run, w->ended);
    SIM_CHECK(run, w->aborted || (w->committed >= STEPS && is_whole(w)));
    if (w->aborted) {
        check_reason(w);
    }
    for (uint32_t i = 0; i < w->trainer_count; i++) {
        ls_coordinator_log *log = ls_cluster_take_log(w->clusters[i]);
        ls_cluster_close(w->clusters[i]);
        ls_agent_destroy(w->trainer_agents[i]);
        ls_coordinator_log_close(log);
    }
    ls_text_release(&w->log);
    for (uint32_t h = 1; h < w->host_count; h++) {
        ls_host_agent_close(w->agents[h]);
    }
    for (uint32_t i = 0; i < w->gone_count; i++) {
        ls_host_agent_close(w->gone[i]);
    }
    for (uint32_t i = 0; i < w->machine_count; i++) {
        ls_segment_release(&w->machines[i].segment);
    }
    seams_break(NULL);
    the_world = NULL;
    free(w->after);
    free(w);
}

static const sim_mutation mutations[] = {
    {"status-of-any-epoch", "what a host said behind an earlier fence counts"},
    {"cut-before-log", "hosts hear of a cut before it is durable"},
    {"newcomer-has-state", "a host that comes back is taken to have what it needs"},
    {"cut-in-a-round", "with local steps, hosts come in the middle of a round"},
};

const sim_world sim_world_cluster = {
    .name = "cluster",
    .text = "a run on several hosts: hosts that crash or are cut off, once and again, with every ZeRO stage, "
            "or with local steps",
    .run = run_world,
    .weight = 2,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
