// SPDX-License-Identifier: Apache-2.0
/*
 * What the policy promises over time, in random worlds played to their end: a reserved start is
 * never put off by who comes later, everybody starts, and what was borrowed is given back.
 */
#include "orchestration/policy/policy_world.h"

#include "base/random.h"

enum { JOBS = 60 };

typedef struct play {
    world w;
    ls_random_key key;
    uint64_t draws;
    ls_policy_job jobs[JOBS + 1];
    uint64_t ends_ms[JOBS + 1], promised_ms[JOBS + 1]; /* 0: none */
    bool started[JOBS + 1], ended[JOBS + 1];
    uint32_t submitted;
} play;

static uint32_t draw(play *p, uint32_t bound)
{
    return (uint32_t)ls_random_below(p->key, p->draws++, 0, bound);
}

static ls_policy_job draw_job(play *p, uint64_t id)
{
    ls_policy_job job = a_job(id, 1 + draw(p, draw(p, 3) ? 6 : 24));
    job.expected_ms = (uint64_t)MINUTE * (1 + draw(p, 300));
    if (draw(p, 3) == 0) {
        job.required = job.ranks <= 8 ? LS_LEVEL_NODE : job.ranks <= 16 ? LS_LEVEL_LEAF : LS_LEVEL_SPINE;
    }
    if (draw(p, 5) == 0) {
        job.devices_per_node = 2;
        job.required = LS_LEVEL_CLUSTER;
        job.ranks = job.min_ranks = job.max_ranks = 2 + (job.ranks < 14 ? job.ranks : 14) / 2 * 2;
    }
    return job;
}

static void play_pass(play *p)
{
    ls_policy_reservation reserved[LS_RESERVATIONS_MAX];
    pass(&p->w);
    for (uint32_t i = 0; i < p->w.count; i++) {
        const ls_action *a = &p->w.actions[i];
        assert_int_equal(a->kind, LS_ACTION_START);
        if (p->promised_ms[a->job] && p->w.now > p->promised_ms[a->job]) {
            fail_msg("job %u was promised a start %u s ago", (unsigned)a->job,
                     (unsigned)((p->w.now - p->promised_ms[a->job]) / 1000));
        }
        p->started[a->job] = true;
        p->ends_ms[a->job] = p->w.now + p->jobs[a->job].expected_ms;
    }
    const uint32_t count = ls_policy_reservations(p->w.policy, reserved, LS_RESERVATIONS_MAX);
    for (uint32_t i = 0; i < count && i < 1;
         i++) { /* the first; those behind it may be put off by it, not by others */
        uint64_t *promised = &p->promised_ms[reserved[i].job];
        if (*promised && reserved[i].starts_ms > *promised) {
            fail_msg("job %u: its start is put off", (unsigned)reserved[i].job);
        }
        *promised = reserved[i].starts_ms;
    }
}

/* Plays until all have run; returns how many were promised a start. */
static uint32_t play_all(play *p)
{
    uint32_t left = JOBS, promises = 0;
    for (uint32_t turns = 0; left > 0; turns++) {
        assert_true(turns < 100 * JOBS); /* everybody starts */
        uint64_t next_ms = UINT64_MAX;
        for (uint32_t id = 1; id <= JOBS; id++) {
            if (p->started[id] && !p->ended[id] && p->ends_ms[id] < next_ms) {
                next_ms = p->ends_ms[id];
            }
        }
        const uint64_t arrival_ms =
            p->submitted < JOBS ? p->w.now + (uint64_t)MINUTE * draw(p, 40) : UINT64_MAX;
        p->w.now = next_ms < arrival_ms ? next_ms : arrival_ms;
        for (uint32_t id = 1; id <= JOBS; id++) {
            if (p->started[id] && !p->ended[id] && p->ends_ms[id] == p->w.now) {
                end(&p->w, id);
                p->ended[id] = true;
                left--;
            }
        }
        if (p->w.now == arrival_ms) {
            const uint64_t id = ++p->submitted;
            p->jobs[id] = draw_job(p, id);
            submit(&p->w, p->jobs[id]);
        }
        play_pass(p);
    }
    for (uint32_t id = 1; id <= JOBS; id++) {
        promises += p->promised_ms[id] != 0;
    }
    return promises;
}

static void reserved_starts_are_kept(void **state)
{
    (void)state;
    static play p;
    uint32_t promises = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ls_policy_settings s = plain_settings(seed % 2 ? LS_ORDER_EASY : LS_ORDER_FAIR);
        s.weight_size = s.weight_fair = 0; /* older is earlier */
        s.age_max_ms = 10000 * (uint64_t)HOUR;
        s.reservations = 1 + (uint32_t)(seed % 6);
        p = (play){.key = ls_random_stream(seed, LS_RANDOM_TEST)};
        world_open(&p.w, 8, 8, 2, &s);
        promises += play_all(&p);
        world_close(&p.w);
    }
    assert_true(promises > 60);
}

/* ---- the same with everything that makes a newcomer rank higher ---- */

enum { STEPS_MOST = 4000, NODES = 6 };

/* What may put a reserved start off. */
typedef enum cause { CAUSE_NONE, CAUSE_CLASS, CAUSE_NODE, CAUSE_END, CAUSES } cause;

typedef struct actor {
    ls_policy_job spec;
    bool here, running;
    uint64_t left_ms, late_ms; /* it runs so much longer than is predicted */
    uint64_t since_ms, promised_ms;
    uint64_t on_nodes; /* bit mask */
} actor;

typedef struct drama {
    world w;
    ls_random_key key;
    uint64_t draws;
    cause cause;
    actor actors[JOBS + 1];
    /* passed: later jobs that started before who was promised a start */
    uint32_t submitted, left, promises, passed;
    ls_policy_reservation before[LS_RESERVATIONS_MAX];
    uint32_t before_count;
    bool down[NODES], excused; /* a cause has come up since the last pass */
} drama;

static uint32_t roll(drama *d, uint32_t bound)
{
    return (uint32_t)ls_random_below(d->key, d->draws++, 0, bound);
}

static uint64_t ends_at(const actor *a)
{
    return a->since_ms + a->left_ms + a->late_ms;
}

static void enter(drama *d)
{
    actor *a = &d->actors[++d->submitted];
    a->spec = a_job(d->submitted, 1 + roll(d, roll(d, 3) ? 4 : 40));
    a->spec.account = roll(d, 4);
    a->spec.priority = d->cause == CAUSE_CLASS && roll(d, 6) == 0 ? 2 : 1;
    a->spec.expected_ms = a->left_ms = (uint64_t)MINUTE * (1 + roll(d, 300));
    a->late_ms = d->cause == CAUSE_END && roll(d, 6) == 0 ? a->left_ms / 2 : 0;
    if (roll(d, 3) == 0) {
        a->spec.required = a->spec.ranks <= 8 ? LS_LEVEL_NODE : LS_LEVEL_CLUSTER;
    }
    a->here = true;
    submit(&d->w, a->spec);
}

static void leave_devices(drama *d, actor *a)
{
    const uint64_t ran_ms = d->w.now - a->since_ms;
    a->left_ms = ran_ms < a->left_ms ? a->left_ms - ran_ms : 1;
    a->running = false;
    a->on_nodes = 0;
}

static void carry_out(drama *d, const ls_action *action)
{
    actor *a = &d->actors[action->job];
    if (action->kind == LS_ACTION_PREEMPT) {
        leave_devices(d, a);
        assert_int_equal(ls_policy_requeued(d->w.policy, d->w.now, action->job), LS_OK);
        return;
    }
    assert_int_equal(action->kind, LS_ACTION_START);
    if (a->promised_ms && d->w.now > a->promised_ms) {
        fail_msg("job %u starts %u s later than it was promised", (unsigned)action->job,
                 (unsigned)((d->w.now - a->promised_ms) / 1000));
    }
    for (uint64_t id = 1; id < action->job; id++) {
        d->passed += d->actors[id].promised_ms != 0 && !d->actors[id].running;
    }
    a->promised_ms = 0;
    a->running = true;
    a->since_ms = d->w.now;
    for (uint32_t i = 0; i < action->share_count; i++) {
        a->on_nodes |= UINT64_C(1) << action->shares[i].node;
    }
}

static bool is_overdue(const drama *d)
{
    for (uint32_t id = 1; id <= d->submitted; id++) {
        const actor *a = &d->actors[id];
        if (a->running && d->w.now >= a->since_ms + a->left_ms) {
            return true;
        }
    }
    return false;
}

static bool higher_waits(const drama *d, const actor *than)
{
    for (uint32_t id = 1; id <= d->submitted; id++) {
        const actor *a = &d->actors[id];
        if (a->here && !a->running && a->spec.priority > than->spec.priority) {
            return true;
        }
    }
    return false;
}

static uint32_t place_before(const drama *d, uint64_t job)
{
    for (uint32_t i = 0; i < d->before_count; i++) {
        if (d->before[i].job == job) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Who had a reserved start has nobody before it whom it did not have before it. (Its time may move
 * when those are planned anew, on other devices.) */
static void check_order(const drama *d, const ls_policy_reservation *now, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t was = place_before(d, now[i].job);
        for (uint32_t k = 0; k < i && was != UINT32_MAX; k++) {
            if (place_before(d, now[k].job) >= was) {
                fail_msg("job %u has passed job %u, whose start was reserved before", (unsigned)now[k].job,
                         (unsigned)now[i].job);
            }
        }
    }
}

static void forget_excused(drama *d)
{
    const bool overdue = is_overdue(d);
    for (uint32_t id = 1; id <= d->submitted; id++) {
        actor *a = &d->actors[id];
        if (d->excused || overdue || higher_waits(d, a)) {
            a->promised_ms = 0;
            d->before_count = 0;
        }
    }
    d->excused = false;
}

static void act(drama *d)
{
    ls_policy_reservation now[LS_RESERVATIONS_MAX];
    forget_excused(d);
    do { /* until one decides nothing: what is given up is given at once */
        pass(&d->w);
        for (uint32_t i = 0; i < d->w.count; i++) {
            carry_out(d, &d->w.actions[i]);
        }
    } while (d->w.count > 0);
    const uint32_t count = ls_policy_reservations(d->w.policy, now, LS_RESERVATIONS_MAX);
    check_order(d, now, count);
    actor *first = count > 0 ? &d->actors[now[0].job] : NULL;
    if (first && now[0].starts_ms > 0) {
        d->promises += first->promised_ms == 0;
        if (first->promised_ms && now[0].starts_ms > first->promised_ms) {
            fail_msg("job %u: its start is put off by %u s", (unsigned)now[0].job,
                     (unsigned)((now[0].starts_ms - first->promised_ms) / 1000));
        }
        first->promised_ms = now[0].starts_ms;
    }
    memcpy(d->before, now, sizeof now);
    d->before_count = count;
}

static void turn_node(drama *d)
{
    const uint32_t node = roll(d, NODES);
    d->down[node] = !d->down[node];
    d->excused = true;
    assert_int_equal(
        ls_policy_node_set(d->w.policy, d->w.now, node, d->down[node] ? LS_NODE_DOWN : LS_NODE_UP), LS_OK);
    for (uint32_t id = 1; id <= d->submitted && d->down[node]; id++) {
        actor *a = &d->actors[id];
        if (a->running && a->on_nodes >> node & 1) {
            leave_devices(d, a);
            assert_int_equal(ls_policy_requeued(d->w.policy, d->w.now, id), LS_OK);
        }
    }
}

/* To the next event: an end, an arrival, or when a pass is due. */
static void go_on(drama *d)
{
    uint64_t next_ms = ls_policy_next_ms(d->w.policy, d->w.now + 1);
    const uint64_t arrival_ms =
        d->submitted < JOBS ? d->w.now + (uint64_t)MINUTE * (1 + roll(d, 25)) : UINT64_MAX;
    for (uint32_t id = 1; id <= d->submitted; id++) {
        const actor *a = &d->actors[id];
        next_ms = a->running && ends_at(a) < next_ms ? ends_at(a) : next_ms;
    }
    d->w.now = next_ms < arrival_ms ? next_ms : arrival_ms;
    for (uint32_t id = 1; id <= d->submitted; id++) {
        actor *a = &d->actors[id];
        if (a->running && ends_at(a) <= d->w.now) {
            end(&d->w, id);
            d->excused = d->excused || a->late_ms > 0;
            a->here = a->running = false;
            d->left--;
        }
    }
    if (d->w.now == arrival_ms) {
        enter(d);
    }
    if (d->cause == CAUSE_NODE && (roll(d, 12) == 0 || d->submitted == JOBS)) {
        uint32_t node = 0;
        while (d->submitted == JOBS && node < NODES && !d->down[node]) {
            node++; /* in the end all come back */
        }
        if (d->submitted < JOBS) {
            turn_node(d);
        } else if (node < NODES) {
            d->down[node] = false;
            d->excused = true;
            assert_int_equal(ls_policy_node_set(d->w.policy, d->w.now, node, LS_NODE_UP), LS_OK);
        }
    }
}

/*
 * Accounts with and without usage, small jobs that rank higher, jobs stopped for who had less
 * service: whoever comes later, the first reserved start is never later than first said, and nobody
 * of the same class gets in front of those behind it; but for a higher class, a lost node, an end
 * that was predicted wrong.
 */
static void reserved_starts_hold_against_who_ranks_higher(void **state)
{
    (void)state;
    static drama d;
    uint32_t promises[CAUSES] = {0}, passed[CAUSES] = {0};
    for (uint64_t seed = 1; seed <= 80; seed++) {
        ls_policy_settings s = ls_policy_settings_default();
        s.order = seed / CAUSES % 4 == 3 ? LS_ORDER_LAS : LS_ORDER_FAIR;
        s.elastic = false;
        s.weight_size = seed / CAUSES % 2 ? 1000 : 90000; /* beside it age is nothing */
        s.half_life_ms = HOUR;
        s.preempt = seed / CAUSES % 3 > 0;
        s.jobs_max = 64;
        s.accounts_max = 8;
        s.reservations = 1 + (uint32_t)(seed % 8);
        d = (drama){
            .key = ls_random_stream(seed, LS_RANDOM_TEST), .cause = (cause)(seed % CAUSES), .left = JOBS};
        world_open(&d.w, NODES, 8, 3, &s);
        for (uint32_t steps = 0; d.left > 0; steps++) {
            assert_true(steps < STEPS_MOST); /* everybody has run */
            go_on(&d);
            act(&d);
        }
        promises[d.cause] += d.promises;
        passed[d.cause] += d.passed;
        world_close(&d.w);
    }
    for (int i = 0; i < CAUSES; i++) {
        assert_true(promises[i] > 100 && passed[i] > 50);
    }
}

/* ---- a machine of four, by hand ---- */

typedef struct stream_of_small {
    world w;
    uint64_t ends_ms[512]; /* of those that run; 0: it does not */
    uint64_t next, run_ms;
    bool known;
} stream_of_small;

static void add_small(stream_of_small *s)
{
    ls_policy_job job = a_job(s->next++, 1);
    job.account = 1; /* has used nothing yet, and is small: ranks higher */
    job.expected_ms = s->known ? s->run_ms : 0;
    submit(&s->w, job);
}

/* Plays minutes with `every` minutes between small jobs until job 1, of four devices, starts;
 * returns how many minutes. */
static uint32_t minutes_until_large_starts(stream_of_small *s, uint32_t every, uint32_t most)
{
    for (uint32_t minute = 0; minute <= most; minute++, s->w.now += MINUTE) {
        for (uint64_t id = 2; id < s->next; id++) {
            if (s->ends_ms[id] && s->ends_ms[id] <= s->w.now) {
                s->ends_ms[id] = 0;
                end(&s->w, id);
            }
        }
        if (minute % every == 0) {
            add_small(s);
        }
        if (minute == 1) {
            ls_policy_job large = a_job(1, 4);
            large.expected_ms = HOUR;
            submit(&s->w, large);
        }
        pass(&s->w);
        if (starts(&s->w, 1)) {
            return minute;
        }
        for (uint32_t i = 0; i < s->w.count; i++) {
            s->ends_ms[s->w.actions[i].job] = s->w.now + s->run_ms;
        }
    }
    return UINT32_MAX;
}

/*
 * Small jobs of half an hour, one every eight minutes: they keep the machine nearly full for ever.
 * The large one comes at minute 1.
 *   ends known: it is reserved at once for minute 30, when the first, of minute 0, ends. Nobody
 *   else gets in. not known: from minute 16 on (its patience is 15) devices are kept; the small one
 *   of minute 16 comes in the same pass and still gets in, nobody after it: minute 16 + 30 = 46.
 * One every minute, seven times what the machine can do: small ones wait too, and count as smaller,
 * until age outweighs size after 72 minutes; the large one then comes before those that came more
 * than that later.
 */
static void large_job_on_a_machine_of_four_starts(void **state)
{
    (void)state;
    static stream_of_small s;
    const struct {
        bool known;
        uint32_t every, first, last; /* minute in which the large one starts */
    } cases[] = {{true, 8, 30, 30}, {false, 8, 46, 46}, {true, 1, 30, 60}, {false, 1, 30, 180}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_policy_settings settings = ls_policy_settings_default();
        settings.jobs_max = 512;
        settings.accounts_max = 4;
        s = (stream_of_small){.next = 2, .run_ms = 30 * MINUTE, .known = cases[i].known};
        world_open(&s.w, 1, 4, 0, &settings);
        const uint32_t minute = minutes_until_large_starts(&s, cases[i].every, 400);
        assert_in_range(minute, cases[i].first, cases[i].last);
        world_close(&s.w);
    }
}

/*
 * 8 devices. 1 (elastic, 4 of 2 to 4) ends at 1 h, 2 (4) at 1 h. 3 wants 8: reserved for then. 4
 * wants 2 and could have them of 1, which would then need another hour: not while 3 counts on its
 * end.
 */
static void who_is_counted_on_is_not_shrunk(void **state)
{
    (void)state;
    world w;
    ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    s.preempt = s.elastic = true;
    world_open(&w, 1, 8, 0, &s);
    for (uint64_t id = 1; id <= 4; id++) {
        ls_policy_job job = a_job(id, id == 3 ? 8 : id == 4 ? 2 : 4);
        job.min_ranks = id == 1 ? 2 : job.ranks;
        job.expected_ms = HOUR;
        if (id == 3) {
            pass(&w);
        }
        submit(&w, job);
        if (id == 3) { /* without it, 4 would get what it wants */
            ls_policy_reservation r;
            pass(&w);
            assert_int_equal(w.count, 0);
            assert_int_equal(ls_policy_reservations(w.policy, &r, 1), 1);
            assert_int_equal(r.starts_ms, w.now + HOUR);
        }
    }
    pass(&w);
    assert_int_equal(w.count, 0);
    end(&w, 3);
    pass(&w);
    assert_non_null(find_action(&w, LS_ACTION_SHRINK, 1));
    world_close(&w);
}

/* 8 devices, 6 taken until 10 h. Account 1 may have 4. Its job 2 (4) is reserved for 10 h; its jobs
 * 3 and 4 (2 that are free) would use up its quota. */
static void quota_of_a_reserved_start_is_kept(void **state)
{
    (void)state;
    world w;
    const ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
    world_open(&w, 1, 8, 0, &s);
    ls_policy_account account = ls_policy_account_default();
    account.quota[LS_RESOURCE_DEVICES] = (ls_quota){.nominal = 4, .lend_max = LS_UNLIMITED};
    assert_int_equal(ls_policy_account_set(w.policy, w.now, 1, &account), LS_OK);
    const struct {
        uint32_t ranks, account, hours;
    } jobs[] = {{6, 0, 10}, {4, 1, 5}, {2, 1, 20}, {2, 1, 9}, {2, 2, 9}};
    for (uint64_t i = 0; i < 5; i++) {
        ls_policy_job job = a_job(i + 1, jobs[i].ranks);
        job.account = jobs[i].account;
        job.expected_ms = jobs[i].hours * (uint64_t)HOUR;
        submit(&w, job);
        pass(&w);
        assert_int_equal(w.count, i == 0 || i == 4); /* 5 is of another account and gone by then */
        w.now += MINUTE;
    }
    assert_int_equal(why(&w, 2).stage, LS_WHY_GANG);
    assert_int_equal(why(&w, 3).stage, LS_WHY_GANG); /* 5 has taken the two */
    world_close(&w);
}

/* ---- borrowed quota ---- */

static uint32_t used_by(const uint32_t *account_of, const uint32_t *ranks, uint32_t account)
{
    uint32_t used = 0;
    for (uint32_t id = 1; id <= JOBS; id++) {
        used += account_of[id] == account ? ranks[id] : 0;
    }
    return used;
}

/* Carries out passes until one has nothing to do; ranks[id] are those that run. */
static void settle(world *w, uint32_t *ranks)
{
    for (uint32_t turns = 0;; turns++) {
        assert_true(turns < 1000);
        pass(w);
        if (w->count == 0) {
            return;
        }
        const uint32_t count = w->count;
        for (uint32_t i = 0; i < count; i++) {
            const ls_action *a = &w->actions[i];
            if (a->kind == LS_ACTION_START) {
                ranks[a->job] = a->ranks;
            } else {
                assert_int_equal(a->kind, LS_ACTION_PREEMPT);
                assert_int_equal(ls_policy_requeued(w->policy, w->now, a->job), LS_OK);
                ranks[a->job] = 0;
            }
        }
    }
}

static void borrowed_quota_is_given_back(void **state)
{
    (void)state;
    enum { ACCOUNTS = 3 };
    const uint32_t nominal[ACCOUNTS] = {8, 16, 8};
    uint32_t borrowed = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w;
        ls_policy_settings s = plain_settings(LS_ORDER_FAIR);
        s.preempt = true;
        s.las_thresholds_device_ms[0] = 0;
        s.preemptions_max = UINT32_MAX;
        const ls_random_key key = ls_random_stream(seed + 100, LS_RANDOM_TEST);
        uint32_t account_of[JOBS + 1] = {0}, ranks[JOBS + 1] = {0}, wanted[JOBS + 1] = {0};
        world_open(&w, 4, 8, 0, &s);
        for (uint32_t i = 0; i < ACCOUNTS; i++) {
            ls_policy_account a = ls_policy_account_default();
            a.quota[0] =
                (ls_quota){.nominal = nominal[i], .borrow_max = LS_UNLIMITED, .lend_max = LS_UNLIMITED};
            assert_int_equal(ls_policy_account_set(w.policy, w.now, i, &a), LS_OK);
        }
        for (uint32_t id = 1; id <= JOBS; id++) {
            const uint64_t random = ls_random_u64(key, id, 0);
            ls_policy_job job = a_job(id, 1 + random % 5);
            /* 0 has it all at first */
            job.account = account_of[id] = id < 16 ? 0 : random / 8 % ACCOUNTS;
            wanted[id] = job.ranks;
            submit(&w, job);
            w.now += MINUTE;
            if (random / 64 % 4 == 0 && id > 4 && ranks[id - 3]) {
                end(&w, id - 3);
                ranks[id - 3] = wanted[id - 3] = 0;
            }
            settle(&w, ranks);
            for (uint32_t a = 0; a < ACCOUNTS; a++) {
                const uint32_t used = used_by(account_of, ranks, a);
                borrowed += used > nominal[a];
                for (uint32_t k = 1; k <= id; k++) {
                    if (account_of[k] != a || ranks[k] || !wanted[k] || used + wanted[k] > nominal[a]) {
                        continue;
                    }
                    for (uint32_t b = 0; b < ACCOUNTS;
                         b++) { /* waits for what is its account's own: then nobody borrows */
                        assert_true(b == a || used_by(account_of, ranks, b) <= nominal[b]);
                    }
                }
            }
        }
        world_close(&w);
    }
    assert_true(borrowed > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserved_starts_are_kept),
        cmocka_unit_test(reserved_starts_hold_against_who_ranks_higher),
        cmocka_unit_test(large_job_on_a_machine_of_four_starts),
        cmocka_unit_test(who_is_counted_on_is_not_shrunk),
        cmocka_unit_test(quota_of_a_reserved_start_is_kept),
        cmocka_unit_test(borrowed_quota_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
