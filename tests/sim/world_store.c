// SPDX-License-Identifier: Apache-2.0
/* The rendezvous store in a network that loses, duplicates, reorders and cuts: the world of
 * tests/comm/store/store_world.h. */
#include "worlds.h"

static sim_run *the_run; /* while a world of this kind runs */

#define CHECK(seed, condition)                                                                               \
    do {                                                                                                     \
        (void)(seed);                                                                                        \
        SIM_CHECK(the_run, condition);                                                                       \
    } while (0)

#include "comm/store/store_world.h"

/* ---- mutations ---- */

void __real_ls_store_session_opened(ls_store_session *session, const unsigned char *nonce);
void __wrap_ls_store_session_opened(ls_store_session *session, const unsigned char *nonce);

void __wrap_ls_store_session_opened(ls_store_session *session, const unsigned char *nonce)
{
    if (the_run && sim_is_mutated(the_run, "never-again")) {
        free(session->request);
        session->request = NULL;
    }
    __real_ls_store_session_opened(session, nonce);
}

ls_status __real_ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out);
ls_status __wrap_ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out);

static uint64_t job_epoch;

ls_status __wrap_ls_store_message_parse(const void *data, size_t bytes, ls_store_message *message_out)
{
    const ls_status status = __real_ls_store_message_parse(data, bytes, message_out);
    if (status == LS_OK && the_run && sim_is_mutated(the_run, "ignore-epoch")) {
        message_out->header.epoch = job_epoch; /* whatever it says, it counts as of now */
    }
    return status;
}

void __real_ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch);
void __wrap_ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch);

void __wrap_ls_store_server_set_epoch(ls_store_server *server, uint64_t epoch)
{
    job_epoch = epoch;
    __real_ls_store_server_set_epoch(server, epoch);
}

/* ---- the world ---- */

static void run_world(sim_run *run)
{
    ls_sim_settings settings = {.seed = run->seed};
    if (sim_draw_fault(run, "hostile", SIM_FAULT_NET, 60)) {
        settings.net_drop = 0.01 * (double)sim_draw(run, "drop_percent", 0, 15);
        settings.net_duplicate = 0.01 * (double)sim_draw(run, "duplicate_percent", 0, 15);
        settings.net_reorder = sim_draw(run, "reorder", 0, 1);
    }
    const bool cuts = sim_draw_fault(run, "cuts", SIM_FAULT_CUT, 50);
    const bool new_epoch = sim_draw(run, "new_epoch", 0, 3) == 0;
    the_run = run;
    job_epoch = 7;
    if (new_epoch) {
        run_with_new_epoch(run->seed, &(ls_sim_settings){.seed = run->seed});
    } else {
        run_with_faults(run->seed, &settings, cuts);
    }
    the_run = NULL;
}

static const sim_mutation mutations[] = {
    {"never-again", "a request without an answer is not repeated on the next link"},
    {"ignore-epoch", "the epoch of a message is not looked at"},
};

const sim_world sim_world_store = {
    .name = "store",
    .text = "the rendezvous store and its clients: lost, doubled, late and reordered messages, cut links, a "
            "new epoch",
    .run = run_world,
    .weight = 2,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
