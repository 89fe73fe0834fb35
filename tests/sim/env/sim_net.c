// SPDX-License-Identifier: Apache-2.0
/* The simulated network. A link is a pair of ends, each owned by a process. What travels between
 * them are events with a random delay, in order unless the hostile mode is on. */
#include "base/assert.h"
#include "sim/env/sim_env_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_BYTES = 192 };
/* from a message that could not pass to the end of its link */
#define BREAK_NS   (1000ull * 1000 * 1000)
#define TIMEOUT_NS (3000ull * 1000 * 1000) /* of a connection attempt over a cut */

/* One end. */
struct ls_sim_link {
    ls_sim_link *next;
    ls_env_id id;
    ls_env_id peer; /* the other end; 0: none yet */
    uint64_t owner;
    ls_sim_host host, peer_host;
    ls_env_link_events events;
    bool open;
    bool breaking;      /* a message met a cut: nothing passes any more */
    uint64_t arrive_ns; /* when the last message to this end arrives: later ones arrive after it */
};

struct ls_sim_listener {
    ls_sim_listener *next;
    ls_env_id id;
    uint64_t owner;
    ls_sim_host host;
    ls_env_link_events events;
    char address[ADDRESS_BYTES];
};

static ls_sim_link *find_link(ls_sim *sim, ls_env_id id)
{
    for (ls_sim_link *at = sim->links; at; at = at->next) {
        if (at->id == id) {
            return at;
        }
    }
    return NULL;
}

static void remove_link(ls_sim *sim, ls_env_id id)
{
    for (ls_sim_link **at = &sim->links; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            ls_sim_link *gone = *at;
            *at = gone->next;
            free(gone);
            return;
        }
    }
}

static ls_sim_link *add_link(ls_sim *sim, const ls_sim_process *owner, const ls_env_link_events *events)
{
    ls_sim_link *link = calloc(1, sizeof *link);
    LS_ASSERT(link && "out of memory for a simulated link");
    *link = (ls_sim_link){.next = sim->links,
                          .id = sim->next_id++,
                          .owner = owner->number,
                          .host = owner->host,
                          .events = *events};
    sim->links = link;
    return link;
}

static uint64_t net_delay(ls_sim *sim)
{
    return ls_sim_delay(sim, sim->settings.net_delay_min_ns, sim->settings.net_delay_max_ns);
}

static bool is_cut(const ls_sim *sim, ls_sim_host a, ls_sim_host b)
{
    return sim->hosts[a]->cut[b];
}

/* ---- what travels ---- */

typedef enum packet_kind { PACKET_CONNECT, PACKET_OPENED, PACKET_MESSAGE, PACKET_CLOSED } packet_kind;

typedef struct packet {
    ls_sim *sim;
    packet_kind kind;
    ls_env_id link; /* the end it goes to; PACKET_CONNECT: the end it comes from */
    ls_env_id from; /* the end it comes from */
    ls_sim_host from_host, to_host;
    int error;
    char address[ADDRESS_BYTES]; /* PACKET_CONNECT */
    size_t bytes;
    unsigned char data[];
} packet;

static void deliver(void *context);

static packet *packet_create(ls_sim *sim, packet_kind kind, ls_env_id link, const void *data, size_t bytes)
{
    packet *made = calloc(1, sizeof *made + bytes);
    LS_ASSERT(made && "out of memory for a simulated message");
    made->sim = sim;
    made->kind = kind;
    made->link = link;
    made->bytes = bytes;
    if (bytes > 0) {
        memcpy(made->data, data, bytes);
    }
    return made;
}

/* Owner 0: packets travel even if no process is left to receive them. */
static void travel(ls_sim *sim, packet *made, uint64_t due_ns)
{
    ls_sim_add(sim, due_ns, 0, 0, deliver, made, free);
}

/* Ends one end after a while, for a reason its owner learns. */
static void break_end(ls_sim *sim, ls_env_id id, int error, uint64_t delay_ns)
{
    ls_sim_link *end = find_link(sim, id);
    if (!end) {
        return;
    }
    end->breaking = true;
    packet *closed = packet_create(sim, PACKET_CLOSED, id, NULL, 0);
    closed->error = error;
    closed->from_host = closed->to_host = end->host;
    travel(sim, closed, sim->now_ns + delay_ns);
}

static void break_both(ls_sim *sim, const packet *lost)
{
    break_end(sim, lost->link, -ETIMEDOUT, BREAK_NS);
    break_end(sim, lost->from, -ETIMEDOUT, BREAK_NS);
}

static ls_sim_listener *find_listener(ls_sim *sim, const char *address)
{
    for (ls_sim_listener *at = sim->listeners; at; at = at->next) {
        if (strcmp(at->address, address) == 0) {
            return at;
        }
    }
    return NULL;
}

/* A connection attempt reaches the host: the listener gets its end, and the answer travels back. */
static void deliver_connect(ls_sim *sim, const packet *arrived)
{
    ls_sim_link *from = find_link(sim, arrived->link);
    if (!from) {
        return; /* given up meanwhile */
    }
    const ls_sim_listener *listener = find_listener(sim, arrived->address);
    const ls_sim_process *owner = listener ? ls_sim_find_process(sim, listener->owner) : NULL;
    if (!owner) {
        break_end(sim, from->id, -ECONNREFUSED, net_delay(sim));
        return;
    }
    ls_sim_link *accepted = add_link(sim, owner, &listener->events);
    accepted->open = true;
    accepted->peer = from->id;
    accepted->peer_host = from->host;
    from->peer = accepted->id;
    from->peer_host = accepted->host;
    packet *opened = packet_create(sim, PACKET_OPENED, from->id, NULL, 0);
    opened->from = accepted->id;
    opened->from_host = accepted->host;
    opened->to_host = from->host;
    from->arrive_ns = sim->now_ns + net_delay(sim);
    travel(sim, opened, from->arrive_ns);
    const ls_env_link_events events = accepted->events; /* the callback may close the link */
    events.opened(events.context, accepted->id);
}

static void deliver_to_end(ls_sim *sim, const packet *arrived)
{
    ls_sim_link *end = find_link(sim, arrived->link);
    if (!end) {
        if (arrived->kind == PACKET_MESSAGE) { /* nothing listens there: the sender is told */
            break_end(sim, arrived->from, -ECONNRESET, net_delay(sim));
        }
        return;
    }
    const ls_env_link_events events = end->events;
    const ls_env_id id = end->id;
    if (arrived->kind == PACKET_CLOSED) {
        remove_link(sim, id);
        events.closed(events.context, id, arrived->error);
    } else if (arrived->kind == PACKET_OPENED && !end->breaking) {
        end->open = true;
        events.opened(events.context, id);
    } else if (arrived->kind == PACKET_MESSAGE && !end->breaking) {
        events.received(events.context, id, arrived->data, arrived->bytes);
    }
}

static void deliver(void *context)
{
    packet *arrived = context;
    ls_sim *sim = arrived->sim;
    if (is_cut(sim, arrived->from_host, arrived->to_host)) {
        if (arrived->kind == PACKET_CONNECT) {
            break_end(sim, arrived->link, -ETIMEDOUT, TIMEOUT_NS);
        } else {
            break_both(sim, arrived);
        }
    } else if (arrived->kind == PACKET_CONNECT) {
        deliver_connect(sim, arrived);
    } else {
        deliver_to_end(sim, arrived);
    }
    free(arrived);
}

/* ---- calls ---- */

/* "HOST:PORT" and "unix:PATH" as this host understands them; *host_out is the host meant, or
 * this host when there is no such host. */
static void full_address(const ls_sim *sim, ls_sim_host here, const char *address, char *out,
                         ls_sim_host *host_out)
{
    *host_out = here;
    if (strncmp(address, "unix:", 5) == 0) {
        snprintf(out, ADDRESS_BYTES, "%s/%s", sim->hosts[here]->name, address);
        return;
    }
    const size_t bytes = strcspn(address, ":");
    for (unsigned i = 0; i < sim->host_count; i++) {
        if (strlen(sim->hosts[i]->name) == bytes && memcmp(sim->hosts[i]->name, address, bytes) == 0) {
            *host_out = i;
        }
    }
    const bool is_local = (bytes == 9 && memcmp(address, "localhost", 9) == 0) ||
                          strncmp(address, "127.", 4) == 0 || strncmp(address, "0.0.0.0", 7) == 0;
    snprintf(out, ADDRESS_BYTES, "%.*s%s", is_local ? 64 : (int)bytes,
             is_local ? sim->hosts[here]->name : address, address + bytes);
}

static int sim_listen(ls_env *env, const char *address, const ls_env_link_events *events,
                      ls_env_id *listener_out)
{
    const ls_sim_process *process = ls_sim_process_of(env);
    ls_sim *sim = process->sim;
    char full[ADDRESS_BYTES];
    ls_sim_host host = 0;
    if (!strchr(address, ':')) {
        return -EINVAL;
    }
    full_address(sim, process->host, address, full, &host);
    const size_t bytes = strlen(full);
    if (bytes > 2 && strcmp(full + bytes - 2, ":0") == 0 && !strstr(full, "unix:")) {
        snprintf(full + bytes - 1, ADDRESS_BYTES - bytes + 1, "%u", sim->hosts[process->host]->next_port++);
    }
    if (find_listener(sim, full)) {
        return -EADDRINUSE;
    }
    ls_sim_listener *listener = calloc(1, sizeof *listener);
    LS_ASSERT(listener && "out of memory for a simulated listener");
    *listener = (ls_sim_listener){.next = sim->listeners,
                                  .id = sim->next_id++,
                                  .owner = process->number,
                                  .host = process->host,
                                  .events = *events};
    memcpy(listener->address, full, sizeof full);
    sim->listeners = listener;
    *listener_out = listener->id;
    return 0;
}

static const char *sim_address(ls_env *env, ls_env_id id)
{
    for (const ls_sim_listener *at = ls_sim_process_of(env)->sim->listeners; at; at = at->next) {
        if (at->id == id) {
            return at->address;
        }
    }
    return NULL;
}

static ls_env_id sim_connect(ls_env *env, const char *address, const ls_env_link_events *events)
{
    const ls_sim_process *process = ls_sim_process_of(env);
    ls_sim *sim = process->sim;
    const ls_sim_link *link = add_link(sim, process, events);
    packet *attempt = packet_create(sim, PACKET_CONNECT, link->id, NULL, 0);
    full_address(sim, process->host, address, attempt->address, &attempt->to_host);
    attempt->from_host = process->host;
    travel(sim, attempt, sim->now_ns + net_delay(sim));
    return link->id;
}

static void send_once(ls_sim *sim, const ls_sim_link *from, const void *data, size_t bytes)
{
    packet *message = packet_create(sim, PACKET_MESSAGE, from->peer, data, bytes);
    message->from = from->id;
    message->from_host = from->host;
    message->to_host = from->peer_host;
    uint64_t due_ns = sim->now_ns + net_delay(sim);
    ls_sim_link *peer = find_link(sim, from->peer);
    if (peer && !sim->settings.net_reorder) {
        due_ns = due_ns > peer->arrive_ns ? due_ns : peer->arrive_ns;
        peer->arrive_ns = due_ns;
    }
    travel(sim, message, due_ns);
}

static int sim_send(ls_env *env, ls_env_id id, const void *data, size_t bytes)
{
    ls_sim *sim = ls_sim_process_of(env)->sim;
    const ls_sim_link *from = find_link(sim, id);
    if (!from || !from->open || from->owner != ls_sim_process_of(env)->number) {
        return -ENOTCONN;
    }
    if (bytes > LS_ENV_MESSAGE_BYTES_MAX) {
        return -EMSGSIZE;
    }
    if (ls_sim_chance(sim, sim->settings.net_drop)) {
        return 0;
    }
    send_once(sim, from, data, bytes);
    if (ls_sim_chance(sim, sim->settings.net_duplicate)) {
        send_once(sim, from, data, bytes);
    }
    return 0;
}

/* The peer learns of it after everything that was sent before. */
static void close_end(ls_sim *sim, ls_env_id id, bool silent)
{
    const ls_sim_link *end = find_link(sim, id);
    if (!end) {
        return;
    }
    const ls_sim_link *peer = find_link(sim, end->peer);
    if (peer && !silent) {
        packet *closed = packet_create(sim, PACKET_CLOSED, peer->id, NULL, 0);
        closed->from = id;
        closed->from_host = end->host;
        closed->to_host = peer->host;
        const uint64_t due_ns = sim->now_ns + net_delay(sim);
        travel(sim, closed, due_ns > peer->arrive_ns ? due_ns : peer->arrive_ns);
    }
    remove_link(sim, id);
}

static void close_listener(ls_sim *sim, ls_env_id id)
{
    for (ls_sim_listener **at = &sim->listeners; *at; at = &(*at)->next) {
        if ((*at)->id == id) {
            ls_sim_listener *gone = *at;
            *at = gone->next;
            free(gone);
            return;
        }
    }
}

static void sim_close(ls_env *env, ls_env_id id)
{
    close_end(ls_sim_process_of(env)->sim, id, false);
    close_listener(ls_sim_process_of(env)->sim, id);
}

void ls_sim_net_process_ended(ls_sim *sim, ls_sim_process *process, bool silent)
{
    for (ls_sim_link *at = sim->links; at;) {
        const ls_env_id id = at->id;
        const bool mine = at->owner == process->number;
        at = at->next;
        if (mine) {
            close_end(sim, id, silent);
        }
    }
    for (ls_sim_listener *at = sim->listeners; at;) {
        const ls_env_id id = at->id;
        const bool mine = at->owner == process->number;
        at = at->next;
        if (mine) {
            close_listener(sim, id);
        }
    }
}

void ls_sim_net_release(ls_sim *sim)
{
    while (sim->links) {
        remove_link(sim, sim->links->id);
    }
    while (sim->listeners) {
        close_listener(sim, sim->listeners->id);
    }
}

void ls_sim_net_fill(ls_env_calls *calls)
{
    calls->net_listen = sim_listen;
    calls->net_address = sim_address;
    calls->net_connect = sim_connect;
    calls->net_send = sim_send;
    calls->net_close = sim_close;
}
