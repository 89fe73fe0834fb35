// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the API: its parts, and what they share.
 *
 *   server.c        life of the API, files of its home folder
 *   exchange.c      one request: rights, route, arguments; the verbs it asks; its answer
 *   run_answers.c   what each kind of route makes of the answers of its verbs
 *   run_routes.c    runs with their metrics, and several of them compared
 *   run_files.c     the files that hold the metrics of a run
 *   run_log_route.c metrics that programs send
 *   page_routes.c   the pages of runs, what they refer to, and notes
 *   models.c        the registry
 *   file_answers.c  files that a job wrote, read by workers: a disk that does not answer delays
 *                   only the requests for that file
 *   names.c         names of users, looked up by workers too
 *   tokens.c        tokens of users for TCP
 *   token_answers.c requests that make, list and revoke them
 *   waiting.c       requests that wait for the end of a job
 *   streams.c       answers without an end: /v1/events, and logs that are followed
 */
#ifndef LS_ORCHESTRATION_API_API_INTERNAL_H
#define LS_ORCHESTRATION_API_API_INTERNAL_H

#include "base/text.h"
#include "env/http/http_server.h"
#include "env/user/user.h"
#include "env/user/user_files.h"
#include "orchestration/api/counters.h"
#include "orchestration/api/request.h"
#include "orchestration/api/run_heads.h"
#include "orchestration/api/runs.h"
#include "orchestration/api/server.h"
#include "orchestration/api/tokens.h"

enum { LS_API_ASKS_MAX = 8 };

typedef struct ls_api_exchange ls_api_exchange;

/* A verb that was asked on behalf of a request. */
typedef struct ls_api_ask {
    ls_api_exchange *exchange; /* NULL: answered */
    int status;
    json_t *answer; /* owned */
} ls_api_ask;

/* Called once all verbs are answered; asks[] has the answers, in order. */
typedef void (*ls_api_next)(ls_api_exchange *exchange);
/* Called once a file was read, or could not be read. */
typedef void (*ls_api_hear_file)(ls_api_exchange *exchange, const ls_user_file_answer *answer);

struct ls_api_exchange {
    ls_api *api;
    ls_api_exchange *next, **here; /* in the API's list of open exchanges */
    ls_http_exchange *http;
    const ls_api_route *route;
    ls_caller caller;
    char user[LS_USER_NAME_BYTES];
    bool wants_name; /* waits until `user` is known */
    bool wants_group;
    bool is_unix; /* it came over the Unix socket */
    bool is_long; /* it may stay open for long: wait, events, a followed log */
    /* user its token was made for; "": none */
    char token_user[LS_USER_NAME_BYTES];
    char allow[32]; /* value of the header Allow; "": none */
    json_t *arguments;
    ls_api_ask asks[LS_API_ASKS_MAX];
    size_t ask_count, open_count; /* open: not answered yet */
    ls_api_next then;
    ls_api_exchange *next_waiting, **waiting_here; /* waiting.c; NULL: not on the list */
    uint64_t wait_until_ns, look_again_ns;
    uint64_t question; /* the file that is being read for it; 0: none */
    uint32_t file_owner;
    ls_api_hear_file hear;
    uint64_t give_up_ns;
    ls_env_id again; /* timer: it waits for a place for its run, or for numbers of runs; 0: none */
    json_t *run_events;
    int trouble; /* of the files of a page or run, the first error; 0: none */
    /* run_routes.c: the run that is read (held; NULL: none), what follows, whether all was read. */
    ls_stored_run *run;
    ls_api_next then_run;
    bool is_whole;
    size_t file_at; /* the file of the run that is read */
    json_t *named;  /* run_files.c: files that job.metrics names; owned, NULL: none */
    ls_api_next then_named;
    /* Of a comparison: the answer so far, and where in the list of runs it is. */
    ls_text text;
    size_t compared, compared_count;
    struct ls_api_page *page;       /* page_routes.c; owned, NULL: none */
    struct ls_api_reading *reading; /* models.c; owned, NULL: none */
};

typedef struct ls_api_streams ls_api_streams;
typedef struct ls_api_names ls_api_names;

struct ls_api {
    ls_http_server *http;
    ls_env *env;
    ls_api_calls calls;
    char *home, *shared; /* shared: folder of a second socket, or NULL */
    bool is_open;        /* `socket` and `address` in the home folder are ours */
    uint32_t owner_uid, owner_gid;
    ls_api_exchange *exchanges, *waiting;
    ls_api_streams *streams;
    ls_api_runs *runs;
    ls_api_heads *heads;
    ls_user_files *files; /* the caller's */
    ls_api_names *names;
    ls_api_tokens *tokens;
    ls_api_counters counters;
};

/* ---- exchange.c: the handler of the HTTP server (ls_http_handler) ---- */

void *ls_api_exchange_begin(void *context, ls_http_exchange *request, const char *method);
void ls_api_exchange_handle(void *exchange);
void ls_api_exchange_hung_up(void *exchange);
void ls_api_exchange_stop(void *exchange);
void ls_api_exchange_end(void *exchange);

/* Asks a verb; takes over `arguments` (NULL: none). ls_api_exchange_then must follow. */
void ls_api_exchange_ask(ls_api_exchange *exchange, ls_verb verb, json_t *arguments);
/* Forgets earlier answers, before verbs are asked again. */
void ls_api_exchange_clear(ls_api_exchange *exchange);
/* Calls `next` when all verbs are answered, which may be at once. */
void ls_api_exchange_then(ls_api_exchange *exchange, ls_api_next next);
/* False: a verb failed, and the exchange is answered with its error. */
bool ls_api_exchange_is_well(ls_api_exchange *exchange);

/* The name it waits for, with the user's primary group (UINT32_MAX: unknown); NULL: it can't be
 * looked up now. */
void ls_api_exchange_named(ls_api_exchange *exchange, const char *name, uint32_t gid);

/* Each of these answers the exchange, for good. Takes over `root`. */
void ls_api_exchange_json(ls_api_exchange *exchange, unsigned code, json_t *root);
/* Takes over the text. */
void ls_api_exchange_text(ls_api_exchange *exchange, unsigned code, const char *type, ls_text *text);
/* With this thread's error text. */
void ls_api_exchange_error(ls_api_exchange *exchange, unsigned code, ls_status status);

/* ---- run_answers.c ---- */

/* The request is complete: row, caller and arguments are there. */
void ls_api_answer(ls_api_exchange *exchange);

/* ---- run_routes.c ---- */

void ls_api_run_list(ls_api_exchange *exchange);
void ls_api_run_show(ls_api_exchange *exchange);
void ls_api_run_metrics(ls_api_exchange *exchange);
void ls_api_run_compare(ls_api_exchange *exchange);
/* Asks for the job of a run, by the id of the run; then asks[0] has it. */
void ls_api_run_ask(ls_api_exchange *exchange, const char *id, ls_api_next then);

/* ---- run_log_route.c ---- */

void ls_api_run_log(ls_api_exchange *exchange);

/* ---- run_files.c ---- */

/* The file of the metrics that programs have sent for a job. folder, name: get their texts. The
 * caller sets bytes and offset. */
ls_user_file ls_api_logged_file(const ls_api *api, uint64_t job, ls_text *folder, char name[32]);

/* A file with metrics. Begin with {0}; the caller sets bytes and offset, and releases `folder`. */
typedef struct ls_api_run_file {
    ls_user_file file; /* borrows from what it was found in, and from the two below */
    uint32_t owner;    /* whom it must belong to */
    const char *key;   /* its name in the store of the run */
    ls_text folder;
    char name[32];
} ls_api_run_file;

/* The file with that index of the run of a row, of which `named` were found; false: no more. */
bool ls_api_run_file_at(const ls_api *api, const json_t *row, const json_t *named, size_t index,
                        ls_api_run_file *file_out);
/* The file to which the run writes last, as far as that is known. */
bool ls_api_run_file_newest(const ls_api *api, const json_t *row, ls_api_run_file *file_out);
/* Finds the files that the row of asks[0] names by patterns: exchange->named. What could not be
 * looked at is in exchange->trouble. */
void ls_api_run_files_name(ls_api_exchange *exchange, ls_api_next then);

/* ---- run_routes.c, again ---- */

/* Reads the metrics of the run that asks[0] shows: exchange->run holds them. */
void ls_api_read_run(ls_api_exchange *exchange, ls_api_next then);
/* A row of /v1/runs, from one of the queue and what was read of the run. A new object. */
json_t *ls_api_run_row(const ls_api *api, const json_t *job);
/* The rows of /v1/runs, `most` at most, from an answer of LS_VERB_LIST. A new array. count_out: how
 * many runs there are. */
json_t *ls_api_run_rows(const ls_api *api, const json_t *list, size_t most, size_t *count_out);

/* ---- page_routes.c ---- */

void ls_api_page_run(ls_api_exchange *exchange);
void ls_api_page_chart(ls_api_exchange *exchange);
void ls_api_page_time(ls_api_exchange *exchange);
void ls_api_page_compare(ls_api_exchange *exchange);
void ls_api_page_compare_chart(ls_api_exchange *exchange);
void ls_api_page_file(ls_api_exchange *exchange);
void ls_api_page_notes(ls_api_exchange *exchange);
/* NULL: nothing. */
void ls_api_page_destroy(ls_api *api, struct ls_api_page *page);

/* ---- models.c ---- */

/* The page of the registry; with the argument `entry`, the picture of its lineage. */
void ls_api_models(ls_api_exchange *exchange);
/* NULL: nothing. */
void ls_api_models_forget(struct ls_api_reading *reading);

/* ---- file_answers.c ---- */

/*
 * Reads a file, one at a time for each exchange; `next` is called later, from the loop, unless the
 * exchange ends before. The file must belong to `owner`, else the error is EPERM: the owner of a
 * folder can put anything into it, also a name that leads to another user's file.
 */
void ls_api_exchange_read(ls_api_exchange *exchange, const ls_user_file *file, uint32_t owner,
                          ls_api_hear_file next);
/* The same check, for an answer that was not asked for by ls_api_exchange_read. */
void ls_api_check_owner(ls_user_file_answer *answer, uint32_t uid);
/* Answers that a file of a job could not be read: 504, 503 or 500. name: "the log". */
void ls_api_exchange_file_error(ls_api_exchange *exchange, uint64_t job, const char *name, int error);
/* A file in the job's folder under $LOCKSTEP_HOME, as "log". folder: gets the path. The caller sets
 * bytes and offset. */
ls_user_file ls_api_log_file(const ls_api *api, uint64_t job, const char *name, ls_text *folder);
/* Where the last `lines` lines of a text begin. */
size_t ls_api_tail_at(const char *text, size_t bytes, uint64_t lines);

/* ---- names.c ---- */

ls_api_names *ls_api_names_create(ls_api *api);
void ls_api_names_destroy(ls_api_names *names);
/*
 * name_out: the name of a user, or NULL while it is looked up: exchanges that want it are then told
 * (ls_api_exchange_named). gid_out: the user's primary group. False: too many names are being
 * looked up.
 */
bool ls_api_names_find(ls_api_names *names, uint32_t uid, const char **name_out, uint32_t *gid_out);

/* ---- token_answers.c ---- */

void ls_api_token_make(ls_api_exchange *exchange);
void ls_api_token_list(ls_api_exchange *exchange);
void ls_api_token_revoke(ls_api_exchange *exchange);

/* ---- waiting.c ---- */

void ls_api_wait_begin(ls_api_exchange *exchange);
void ls_api_wait_forget(ls_api_exchange *exchange);
/* Looks at requests for `job`, which has ended (0: none has), and at those whose time is over. */
void ls_api_wait_look(ls_api *api, uint64_t job);

/* ---- streams.c ---- */

ls_api_streams *ls_api_streams_create(ls_api *api);
void ls_api_streams_destroy(ls_api_streams *streams);
/* Ends all streams; what they hold is still sent. */
void ls_api_streams_close(ls_api_streams *streams);
void ls_api_streams_tell(ls_api_streams *streams, const ls_transition *transition, const ls_job *job);
void ls_api_streams_open_events(ls_api_exchange *exchange);
/* job: the answer of LS_VERB_SHOW. name: a file in its folder, which need not exist yet. */
void ls_api_streams_open_log(ls_api_exchange *exchange, const json_t *job, const char *name, uint64_t from);
/* Once a second. */
void ls_api_streams_beat(ls_api_streams *streams);

#endif
