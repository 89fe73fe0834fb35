// SPDX-License-Identifier: Apache-2.0
#include "env/user/user_files.h"

#include "base/assert.h"
#include "env/user/user.h"
#include "env/user/user_helper.h"
#include "env/user/user_read.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* The limits of user_files.h. A worker is a thread that has a call to make, or hangs in one. A
 * call is active as long as its answer is wanted: not any more when it is over its limit or
 * forgotten. */
enum {
    WORKERS_MAX = 256,
    WORKERS_RESERVED = 16, /* of those, for files of our own and names of users */
    WORKERS_OF_USER_MAX = 8,
    WORKERS_OF_OURS_MAX = 64,
    ACTIVE_MAX = 32,
    ACTIVE_OF_USER_MAX = 8,
    ACTIVE_OF_HUNG_USER_MAX = 2, /* while one call of that user is over its limit */
    STACK_BYTES = 256 * 1024,
    IDLE_S = 30,   /* then a worker without work ends */
    DESTROY_S = 1, /* for calls under way when all is destroyed */
};

typedef enum place { WAITING, WORKING, DONE } place;

/* `place` says in which of the pool's lists a request is; list, `is_unwanted` and `is_overdue` are
 * under the pool's lock. */
typedef struct request {
    struct request *next;
    uint64_t number;
    place place;
    bool is_unwanted; /* WORKING, and `done` will not be called: its worker frees it */
    bool is_overdue;  /* unwanted because it was over its limit */
    char *folder, *path;
    ls_user_file file;
    ls_user_file_answer answer;
    char *data;
    ls_user_file_done done;
    void *context;
    ls_user_files *files; /* the loop's; workers do not touch it */
    ls_env_id limit;
} request;

/* What the workers see. It may outlive ls_user_files because of calls that hang; the last that uses
 * it frees it. */
typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, gone; /* gone: a worker has ended */
    request *waiting, **waiting_end;
    request *working;
    request *done, **done_end;
    uint32_t workers, idle;
    uint32_t overdue;  /* workers whose call is over its limit */
    uint32_t starting; /* counted as workers, and not running yet */
    uint32_t uses;
    bool is_closed;
    int event_fd; /* tells the loop that something is done */
    ls_user_helpers *helpers;
} pool;

struct ls_user_files {
    ls_env *env;
    uint64_t limit_ns;
    pool *pool;
    ls_env_id watch;
    uint64_t next_number;
    uint32_t asked;
};

static void free_request(request *r)
{
    free(r->folder);
    free(r->path);
    free(r->data);
    free(r);
}

/* Called with the lock, which it releases. */
static void drop_pool(pool *p)
{
    const bool is_last = --p->uses == 0;
    pthread_mutex_unlock(&p->lock);
    if (is_last) {
        ls_user_helpers_destroy(p->helpers);
        close(p->event_fd);
        pthread_cond_destroy(&p->work);
        pthread_cond_destroy(&p->gone);
        pthread_mutex_destroy(&p->lock);
        free(p);
    }
}

/* ---- the call itself, in a worker, without the lock ---- */

static void look_up_name(request *r)
{
    r->data = malloc(LS_USER_NAME_BYTES);
    if (!r->data) {
        r->answer.error = ENOMEM;
        return;
    }
    r->answer.owner = ls_user_name_and_group(r->file.uid, r->data);
    r->answer.bytes = strlen(r->data);
}

static void read_file(ls_user_helpers *helpers, request *r)
{
    const ls_user_file *file = &r->file;
    const ls_user_read what = {.is_folder = file->is_folder,
                               .from_end = file->from_end,
                               .offset = file->offset,
                               .bytes = file->bytes};
    ls_user_read_result result;
    if (geteuid() == 0 && file->uid != 0) {
        ls_user_helpers_read(helpers, (ls_user_identity){file->uid, file->gid}, &what, r->path, &result,
                             &r->data);
    } else {
        ls_user_read_path(&what, r->path, &result, &r->data);
    }
    r->answer = (ls_user_file_answer){.error = result.error,
                                      .file_bytes = result.file_bytes,
                                      .owner = result.owner,
                                      .modified_s = result.modified_s,
                                      .offset = result.offset,
                                      .bytes = (size_t)result.bytes};
}

static void make_call(ls_user_helpers *helpers, request *r)
{
    if (r->file.is_user) {
        look_up_name(r);
    } else {
        read_file(helpers, r);
    }
    r->answer.data = r->data;
}

/* ---- which request may be worked on ---- */

static bool is_ours(const request *r)
{
    return r->file.is_user || r->file.uid == geteuid();
}

/* Names count as one user: we are the ones who look them up. */
static bool is_of_same_user(const request *a, const request *b)
{
    return a->file.is_user == b->file.is_user && (a->file.is_user || a->file.uid == b->file.uid);
}

/* What is going on, seen from a request that wants to begin. */
typedef struct load {
    uint32_t workers, active;           /* of all users */
    uint32_t user_workers, user_active; /* of the request's user */
    bool user_hangs;                    /* a call of that user is over its limit */
    bool folder_is_taken;
} load;

static load load_for(const pool *p, const request *wanted)
{
    load l = {0};
    for (const request *r = p->working; r; r = r->next) {
        const bool is_same = is_of_same_user(r, wanted), is_active = !r->is_unwanted;
        l.workers++;
        l.active += is_active;
        l.user_workers += is_same;
        l.user_active += is_same && is_active;
        l.user_hangs |= is_same && r->is_overdue;
        l.folder_is_taken |= strcmp(r->folder, wanted->folder) == 0;
    }
    return l;
}

static bool may_begin(const pool *p, const request *wanted)
{
    const load l = load_for(p, wanted);
    if (l.folder_is_taken || l.user_active >= (l.user_hangs ? ACTIVE_OF_HUNG_USER_MAX : ACTIVE_OF_USER_MAX)) {
        return false;
    }
    if (is_ours(wanted)) {
        return l.user_workers < WORKERS_OF_OURS_MAX && l.workers < WORKERS_MAX;
    }
    const bool is_first = l.user_workers == 0;
    return l.user_workers < WORKERS_OF_USER_MAX && l.workers < WORKERS_MAX - WORKERS_RESERVED &&
           (is_first || l.active < ACTIVE_MAX);
}

/* The first request from `at` on that may begin: where it hangs in the list; NULL: none. */
static request **find_ready(const pool *p, request **at)
{
    while (*at && !may_begin(p, *at)) {
        at = &(*at)->next;
    }
    return *at ? at : NULL;
}

/* ---- a worker's life ---- */

static void wake_worker(pool *p);

/*
 * Takes the first request that may begin. Wakes another worker if a second one may: this worker may
 * never come back. (What is before the first in the list could not begin, and can't now.)
 */
static request *take(pool *p)
{
    request **at = find_ready(p, &p->waiting);
    if (!at) {
        return NULL;
    }
    request *r = *at;
    *at = r->next;
    if (!r->next) {
        p->waiting_end = at;
    }
    r->next = p->working;
    p->working = r;
    r->place = WORKING;
    if (find_ready(p, at)) {
        wake_worker(p);
    }
    return r;
}

static void put_done(pool *p, request *r)
{
    const uint64_t one = 1;
    r->next = NULL;
    r->place = DONE;
    *p->done_end = r;
    p->done_end = &r->next;
    (void)!write(p->event_fd, &one, sizeof one);
}

static void finish(pool *p, request *r)
{
    for (request **at = &p->working; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    p->overdue -= r->is_overdue;
    if (r->is_unwanted) {
        free_request(r);
    } else {
        put_done(p, r);
    }
}

/* False: there was no work for a while. */
static bool wait_for_work(pool *p)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_S;
    p->idle++;
    const int result = pthread_cond_clockwait(&p->work, &p->lock, CLOCK_MONOTONIC, &until);
    p->idle--;
    return result != ETIMEDOUT;
}

static void *worker(void *context)
{
    pool *p = context;
    pthread_mutex_lock(&p->lock);
    p->starting--;
    for (bool stays = true; !p->is_closed;) {
        request *r = take(p);
        if (r) {
            pthread_mutex_unlock(&p->lock);
            make_call(p->helpers, r);
            pthread_mutex_lock(&p->lock);
            finish(p, r);
            stays = true;
        } else if (stays) {
            stays = wait_for_work(p);
        } else {
            break;
        }
    }
    pthread_mutex_unlock(&p->lock);
    ls_user_helpers_trim(p->helpers);
    pthread_mutex_lock(&p->lock);
    p->workers--;
    pthread_cond_signal(&p->gone);
    drop_pool(p);
    return NULL;
}

/*
 * Wakes a worker or starts one. Called with the lock. One is enough, however many requests may
 * begin: it wakes the next when it takes the first. If no thread can be had, the workers there are
 * get to the request, or its limit ends it.
 */
static void wake_worker(pool *p)
{
    if (p->idle > 0) {
        pthread_cond_signal(&p->work);
        return;
    }
    if (p->starting > 0 || p->workers >= WORKERS_MAX) {
        return;
    }
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, worker, p) == 0) {
        p->workers++;
        p->starting++;
        p->uses++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Called with the lock, after a change that may let a waiting request begin while every worker is
 * busy. */
static void wake_worker_if_ready(pool *p)
{
    if (find_ready(p, &p->waiting)) {
        wake_worker(p);
    }
}

/* ---- the loop's side ---- */

static void unlink_from(request **list, request ***end, const request *gone)
{
    for (request **at = list; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            if (!*at) {
                *end = at;
            }
            return;
        }
    }
}

/* One answer for each call: a `done` may forget the next request, or destroy everything. */
static void deliver(void *context)
{
    ls_user_files *files = context;
    pool *p = files->pool;
    uint64_t count = 0;
    pthread_mutex_lock(&p->lock);
    (void)!read(p->event_fd, &count, sizeof count);
    request *r = p->done;
    if (r) {
        unlink_from(&p->done, &p->done_end, r);
    }
    if (p->done) {
        count = 1;
        (void)!write(p->event_fd, &count, sizeof count);
    }
    pthread_mutex_unlock(&p->lock);
    if (!r) {
        return;
    }
    files->asked--;
    if (r->limit) {
        ls_env_timer_cancel(files->env, r->limit);
    }
    r->done(r->context, &r->answer);
    free_request(r);
}

static void limit_is_over(void *context)
{
    request *r = context;
    ls_user_files *files = r->files;
    pool *p = files->pool;
    const ls_user_file_done done = r->done;
    void *const done_context = r->context;
    pthread_mutex_lock(&p->lock);
    r->limit = 0;
    const place was = r->place;
    if (was == WAITING) {
        unlink_from(&p->waiting, &p->waiting_end, r);
    } else if (was == WORKING) {
        r->is_unwanted = r->is_overdue = true; /* the worker's from now on */
        p->overdue++;
        wake_worker_if_ready(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (was == DONE) {
        return; /* just in time: deliver() is about to be called */
    }
    if (was == WAITING) {
        free_request(r);
    }
    files->asked--;
    done(done_context, &(ls_user_file_answer){.error = ETIMEDOUT});
}

static bool folder_hangs(const pool *p, const char *folder)
{
    for (const request *r = p->working; r; r = r->next) {
        if (r->is_overdue && strcmp(r->folder, folder) == 0) {
            return true;
        }
    }
    return false;
}

static request *new_request(ls_user_files *files, const ls_user_file *file)
{
    request *r = calloc(1, sizeof *r);
    char *path = NULL;
    LS_ASSERT(r && "not enough memory for a request");
    *r = (request){.number = ++files->next_number, .files = files, .file = *file};
    r->folder = strdup(file->is_user ? "" : file->folder);
    LS_ASSERT(r->folder && (file->is_user || asprintf(&path, "%s/%s", file->folder, file->name) > 0));
    r->path = path;
    r->file.folder = r->file.name = NULL;
    return r;
}

uint64_t ls_user_files_ask(ls_user_files *files, const ls_user_file *file, ls_user_file_done done,
                           void *context)
{
    pool *p = files->pool;
    request *r = new_request(files, file);
    r->done = done;
    r->context = context;
    pthread_mutex_lock(&p->lock);
    r->answer.error = files->asked >= LS_USER_FILES_ASKED_MAX ? EAGAIN
                      : folder_hangs(p, r->folder)            ? EBUSY
                                                              : 0;
    files->asked++;
    if (r->answer.error) {
        put_done(p, r);
    } else {
        r->limit = ls_env_timer_set(files->env, files->limit_ns, limit_is_over, r);
        *p->waiting_end = r;
        p->waiting_end = &r->next;
        if (may_begin(p, r)) { /* else the worker that makes room for it takes it */
            wake_worker(p);
        }
    }
    const uint64_t number = r->number;
    pthread_mutex_unlock(&p->lock);
    return number;
}

static request *find(request *list, uint64_t number)
{
    while (list && list->number != number) {
        list = list->next;
    }
    return list;
}

/* The request that is still wanted; NULL: there is none of that number. Called with the lock. */
static request *find_wanted(const pool *p, uint64_t number)
{
    request *lists[] = {p->waiting, p->working, p->done}, *found = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && !found; i++) {
        found = find(lists[i], number);
    }
    return found && !found->is_unwanted ? found : NULL;
}

void ls_user_files_forget(ls_user_files *files, uint64_t number)
{
    pool *p = files->pool;
    pthread_mutex_lock(&p->lock);
    request *r = number ? find_wanted(p, number) : NULL;
    if (r) {
        files->asked--;
        if (r->limit) {
            ls_env_timer_cancel(files->env, r->limit);
        }
        switch (r->place) {
        case WAITING:
            unlink_from(&p->waiting, &p->waiting_end, r);
            free_request(r);
            break;
        case WORKING:
            r->is_unwanted = true;
            wake_worker_if_ready(p);
            break;
        case DONE:
            unlink_from(&p->done, &p->done_end, r);
            free_request(r);
            break;
        }
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- life ---- */

static pool *new_pool(void)
{
    pool *p = calloc(1, sizeof *p);
    LS_ASSERT(p && "not enough memory to read files as their owners");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->gone, NULL);
    p->waiting_end = &p->waiting;
    p->done_end = &p->done;
    p->uses = 1;
    p->helpers = ls_user_helpers_create();
    p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return p;
}

ls_status ls_user_files_create(ls_env *env, uint64_t limit_ns, ls_user_files **files_out)
{
    ls_user_files *files = calloc(1, sizeof *files);
    LS_ASSERT(files && "not enough memory to read files as their owners");
    pool *p = new_pool();
    *files = (ls_user_files){.env = env, .limit_ns = limit_ns, .pool = p};
    const int error =
        p->event_fd < 0 ? errno : -ls_env_real_watch(env, p->event_fd, deliver, files, &files->watch);
    if (error) {
        pthread_mutex_lock(&p->lock);
        drop_pool(p);
        free(files);
        return ls_fail_errno(error,
                             "can't set up the reading of other users' files, which a daemon of root needs");
    }
    *files_out = files;
    return LS_OK;
}

static uint64_t any_wanted(pool *p)
{
    pthread_mutex_lock(&p->lock);
    const request *r = p->working;
    while (r && r->is_unwanted) {
        r = r->next;
    }
    r = p->waiting ? p->waiting : p->done ? p->done : r;
    const uint64_t number = r ? r->number : 0;
    pthread_mutex_unlock(&p->lock);
    return number;
}

/* Idle workers end at once; a call under way gets a moment, unless it is known to hang. */
static void wait_for_workers(pool *p)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += DESTROY_S;
    while (p->workers > p->overdue &&
           pthread_cond_clockwait(&p->gone, &p->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT) {
    }
}

void ls_user_files_destroy(ls_user_files *files)
{
    if (!files) {
        return;
    }
    pool *p = files->pool;
    for (uint64_t number = any_wanted(p); number; number = any_wanted(p)) {
        ls_user_files_forget(files, number);
    }
    ls_env_real_unwatch(files->env, files->watch);
    pthread_mutex_lock(&p->lock);
    p->is_closed = true;
    pthread_cond_broadcast(&p->work);
    wait_for_workers(p);
    drop_pool(p);
    free(files);
}
