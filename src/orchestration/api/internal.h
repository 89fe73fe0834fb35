// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the API server: its parts, and what they share.
 *
 *   server.c     the doors: sockets, the library's loop inside ours, connections and their deadlines
 *   exchange.c   one request: what comes in, guard, row, arguments; the verbs asked for it; its answer
 *   answers.c    what each kind of row makes of the answers of its verbs
 *   job_files.c  what a job wrote, read by workers: a disk that does not answer keeps nobody else
 *   names.c      what users are called, asked of workers too
 *   waiting.c    requests that wait for the end of a job
 *   streams.c    answers that go on: /v1/events, and logs that are followed
 */
#ifndef LS_ORCHESTRATION_API_INTERNAL_H
#define LS_ORCHESTRATION_API_INTERNAL_H

#include "base/text.h"
#include "base/user.h"
#include "base/user_files.h"
#include "orchestration/api/counters.h"
#include "orchestration/api/guard.h"
#include "orchestration/api/history.h"
#include "orchestration/api/microhttpd.h"
#include "orchestration/api/request.h"
#include "orchestration/api/server.h"

enum { LS_API_ASKS_MAX = 5, LS_API_HOSTS_MAX = 6 };

typedef struct ls_api_door {
    ls_api *api;
    bool is_unix;
    struct MHD_Daemon *daemon; /* NULL: this door is shut */
    ls_env_id watch, timer;    /* timer 0: none set */
} ls_api_door;

/* One connection. */
typedef struct ls_api_link {
    struct ls_api_link *next, **here; /* in the API's list */
    ls_api_door *door;
    int fd;
    bool is_peer_known;
    uint32_t uid, gid;
    uint64_t deadline_ns;             /* 0: none */
    struct ls_api_exchange *exchange; /* the request under way; NULL: none */
} ls_api_link;

typedef struct ls_api_exchange ls_api_exchange;

/* A verb asked for a request. */
typedef struct ls_api_ask {
    ls_api_exchange *exchange; /* NULL: answered */
    int status;
    json_t *answer; /* owned */
} ls_api_ask;

/* Called once all that was asked is answered; asks[] has it, in order. */
typedef void (*ls_api_next)(ls_api_exchange *exchange);
/* Called once a file was read, or could not be. */
typedef void (*ls_api_hear_file)(ls_api_exchange *exchange, const ls_user_file_answer *answer);

struct ls_api_exchange {
    ls_api *api;
    ls_api_link *link;
    struct MHD_Connection *connection;
    char *target; /* as it came */
    const ls_api_route *route;
    ls_caller caller;
    char user[LS_USER_NAME_BYTES];
    bool wants_name; /* it sleeps until `user` is known */
    ls_text body;
    bool has_begun, is_too_long;
    bool is_handled; /* the request is complete and was acted on */
    bool is_inside;  /* the library is calling us about it */
    bool is_asleep;
    bool is_stream; /* its answer has no end of its own */
    json_t *arguments;
    ls_api_ask asks[LS_API_ASKS_MAX];
    size_t ask_count, open_count;
    ls_api_next next;
    struct MHD_Response *response;
    unsigned code;
    ls_api_exchange *next_waiting, **waiting_here; /* waiting.c; NULL: not on the list */
    uint64_t wait_until_ns, look_again_ns;
    uint64_t question; /* the file that is being read for it; 0: none */
    uint32_t file_owner;
    ls_api_hear_file hear;
    ls_api_history *history; /* held; NULL: none */
    uint64_t give_up_ns;
    ls_env_id again; /* timer: it waits for a history; 0: none */
    json_t *run_events;
    int trouble; /* of the files of a page, the first error; 0: none */
};

typedef struct ls_api_streams ls_api_streams;
typedef struct ls_api_names ls_api_names;

struct ls_api {
    const ls_microhttpd *mhd;
    ls_env *env;
    ls_api_calls calls;
    char *home, *address;
    char *host_texts[LS_API_HOSTS_MAX];
    const char *hosts[LS_API_HOSTS_MAX + 1];
    ls_api_guard guard;
    uint32_t owner_gid;
    ls_api_door doors[2]; /* Unix, TCP */
    ls_api_link *links;
    size_t body_bytes; /* of all requests that are being read */
    size_t open_exchanges;
    uint64_t request_ns;
    ls_env_id sweep;
    ls_api_exchange *waiting;
    ls_api_streams *streams;
    ls_api_histories *histories;
    ls_user_files *files; /* the caller's */
    ls_api_names *names;
    ls_api_counters counters;
};

/* ---- server.c ---- */

/* The library has something to do: soon, from the loop. */
void ls_api_door_kick(ls_api_door *door);
/* Has the other end closed? */
bool ls_api_is_hung_up(int fd);

/* ---- exchange.c ---- */

void *ls_api_exchange_begin(void *context, const char *uri, struct MHD_Connection *connection);
enum MHD_Result ls_api_exchange_take(void *context, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version, const char *data, size_t *bytes,
                                     void **exchange);
void ls_api_exchange_end(void *context, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode how);

/* Asks a verb; takes over `arguments` (NULL: none). To be followed by ls_api_exchange_then. */
void ls_api_exchange_ask(ls_api_exchange *exchange, ls_verb verb, json_t *arguments);
/* Forgets earlier answers: before another round of questions. */
void ls_api_exchange_clear(ls_api_exchange *exchange);
/* Calls `next` when all that was asked is answered, which may be now. */
void ls_api_exchange_then(ls_api_exchange *exchange, ls_api_next next);
/* Did all verbs answer well? Else their error is passed on, and the exchange is answered. */
bool ls_api_exchange_is_well(ls_api_exchange *exchange);

/* The name that it wants is known, or NULL: can't be learned now. */
void ls_api_exchange_named(ls_api_exchange *exchange, const char *name);

/* Each answers the exchange: nothing follows. Takes over `root`. */
void ls_api_exchange_json(ls_api_exchange *exchange, unsigned code, json_t *root);
/* Takes over the text. */
void ls_api_exchange_text(ls_api_exchange *exchange, unsigned code, const char *type, ls_text *text);
/* With this thread's error text. */
void ls_api_exchange_error(ls_api_exchange *exchange, unsigned code, ls_status status);
/* Takes over the response. */
void ls_api_exchange_respond(ls_api_exchange *exchange, unsigned code, struct MHD_Response *response);

/* ---- answers.c ---- */

/* The request is complete: row, caller and arguments are there. */
void ls_api_answer(ls_api_exchange *exchange);
/* ---- job_files.c ---- */

/*
 * Reads a file, for an exchange that reads none; `next` is called later, from the loop, unless the exchange ends before. It must belong to `owner`: a folder is its
 * owner's, who could put anything there, a name that leads to somebody else's file too; else the answer's error is EPERM.
 */
void ls_api_exchange_read(ls_api_exchange *exchange, const ls_user_file *file, uint32_t owner,
                          ls_api_hear_file next);
/* The same check for an answer that came another way. */
void ls_api_check_owner(ls_user_file_answer *answer, uint32_t uid);
/* Answers that a file of a job could not be read: 504, 503 or 500. name: "the log". */
void ls_api_exchange_file_error(ls_api_exchange *exchange, uint64_t job, const char *name, int error);
/* A file in the folder of a job under ours: "log". folder: holds the path. Sizes and offset are the caller's to set. */
ls_user_file ls_api_log_file(const ls_api *api, uint64_t job, const char *name, ls_text *folder);
/* Where the last `lines` lines of a text begin. */
size_t ls_api_tail_at(const char *text, size_t bytes, uint64_t lines);

/* ---- names.c ---- */

ls_api_names *ls_api_names_create(ls_api *api);
void ls_api_names_destroy(ls_api_names *names);
/*
 * name_out: what a user is called, or NULL: it was asked for, and exchanges that want it hear of it (ls_api_exchange_named). False: too many are asked for.
 */
bool ls_api_names_find(ls_api_names *names, uint32_t uid, const char **name_out);

/* ---- waiting.c ---- */

void ls_api_wait_begin(ls_api_exchange *exchange);
void ls_api_wait_forget(ls_api_exchange *exchange);
/* Looks at those whose job has ended (job, not 0), or whose time has come. */
void ls_api_wait_look(ls_api *api, uint64_t job);

/* ---- streams.c ---- */

ls_api_streams *ls_api_streams_create(ls_api *api);
void ls_api_streams_destroy(ls_api_streams *streams);
/* Ends all of them: what they have is still sent. */
void ls_api_streams_close(ls_api_streams *streams);
void ls_api_streams_tell(ls_api_streams *streams, const ls_transition *transition, const ls_job *job);
void ls_api_streams_open_events(ls_api_exchange *exchange);
/* job: as LS_VERB_SHOW told it. name: of the file in its folder, which need not be there yet. */
void ls_api_streams_open_log(ls_api_exchange *exchange, const json_t *job, const char *name, uint64_t from);
/* Once a second. */
void ls_api_streams_beat(ls_api_streams *streams);

#endif
