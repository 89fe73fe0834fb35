// SPDX-License-Identifier: Apache-2.0
#include "base/user_files.h"

#include "base/assert.h"
#include "base/user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Threads. One whose answer nobody waits for any more (it hangs, most likely) is left out of what goes on, and of nothing else. */
    THREADS_MAX = 256,
    KEPT_FOR_US = 16,          /* of those: for files of our own, and names of users */
    GOING_ON_MAX = 32,         /* one more for each user who has none */
    GOING_ON_PER_USER = 8,     /* as long as nothing of his hangs */
    GOING_ON_BESIDE_STUCK = 2, /* else */
    PER_USER_MAX = 8,
    FOR_US_MAX = 64,
    STACK_BYTES = 256 * 1024,
    GROUPS_MAX = 256,
    IDLE_S = 30, /* then a worker ends */
    END_S = 1,   /* for calls under way when all is destroyed */
};

typedef enum place { IN_TODO, AT_WORK, IN_DONE } place;

typedef struct question {
    struct question *next;
    uint64_t number;
    place place;       /* under the lock */
    bool is_abandoned; /* under the lock: at work, and nobody waits for it any more: its worker frees it */
    bool is_overdue;   /* under the lock: abandoned because it was at work when its limit was over */
    char *folder, *path;
    ls_user_file file;
    ls_user_file_answer answer;
    char *data;
    ls_user_file_done done;
    void *context;
    ls_user_files *files; /* the loop's; not touched by workers */
    ls_env_id limit;
} question;

/* What workers see: it may outlive the loop's part, for a call that hangs. Freed by the last that uses it. */
typedef struct desk {
    pthread_mutex_t lock;
    pthread_cond_t work, gone; /* gone: a worker has ended */
    question *todo, **todo_end;
    question *at_work;
    question *done, **done_end;
    uint32_t workers, idle, stuck; /* stuck: with something overdue */
    uint32_t starting;             /* counted as workers, and not there yet */
    uint32_t uses;
    bool is_closed;
    int event_fd;
} desk;

struct ls_user_files {
    ls_env *env;
    uint64_t limit_ns;
    desk *desk;
    ls_env_id watch;
    uint64_t next_number;
    uint32_t asked;
};

static void free_question(question *q)
{
    free(q->folder);
    free(q->path);
    free(q->data);
    free(q);
}

/* With the lock, which it gives back. */
static void drop_desk(desk *d)
{
    const bool is_last = --d->uses == 0;
    pthread_mutex_unlock(&d->lock);
    if (is_last) {
        close(d->event_fd);
        pthread_cond_destroy(&d->work);
        pthread_cond_destroy(&d->gone);
        pthread_mutex_destroy(&d->lock);
        free(d);
    }
}

/* ---- a worker: who it is ---- */

typedef struct identity {
    bool is_known;
    uint32_t uid, gid;
} identity;

/*
 * As another, only what it takes to become the next. With the number 0 just those leave that go past the modes of files; with CAP_SYS_PTRACE a link of another's
 * process in /proc could still be walked. This thread alone.
 */
static bool set_capabilities(bool is_root)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data) != 0) {
        return false;
    }
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        data[i].effective = is_root ? data[i].permitted : 0;
    }
    if (!is_root) {
        data[0].effective = 1u << CAP_SETUID | 1u << CAP_SETGID;
    }
    return syscall(SYS_capset, &header, data) == 0;
}

/* This thread alone: the C library would make every thread of the process that user. */
static bool become(identity *now, uint32_t uid, uint32_t gid)
{
    if (geteuid() != 0 || (now->is_known && now->uid == uid && now->gid == gid)) {
        return true;
    }
    struct passwd user, *found = NULL;
    char text[4096];
    gid_t groups[GROUPS_MAX] = {gid};
    int count = GROUPS_MAX;
    if (getpwuid_r(uid, &user, text, sizeof text, &found) != 0 || !found ||
        getgrouplist(user.pw_name, gid, groups, &count) < 0) {
        groups[0] = gid;
        count = 1;
    }
    now->is_known = false;
    const bool has_groups = syscall(SYS_setgroups, (size_t)count, groups) == 0;
    setfsgid(gid);
    setfsuid(uid);
    if (!has_groups || (uint32_t)setfsgid((gid_t)-1) != gid || (uint32_t)setfsuid((uid_t)-1) != uid ||
        !set_capabilities(uid == 0)) {
        return false;
    }
    *now = (identity){true, uid, gid};
    return true;
}

/* ---- a worker: its calls ---- */

static int open_it(const question *q)
{
    /* A FIFO must keep nobody, a device not be touched, a link not be followed. */
    const int flags = q->file.is_folder ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK | O_NOCTTY;
    return open(q->path, flags | O_NOFOLLOW | O_CLOEXEC);
}

static size_t read_it(int fd, char *data, size_t bytes, uint64_t offset)
{
    size_t got = 0;
    while (got < bytes) {
        const ssize_t part = pread(fd, data + got, bytes - got, (off_t)(offset + got));
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part <= 0) {
            break;
        }
        got += (size_t)part;
    }
    data[got] = '\0';
    return got;
}

static void fill(question *q, int fd, const struct stat *info)
{
    ls_user_file_answer *a = &q->answer;
    const uint64_t size = (uint64_t)info->st_size, offset = q->file.offset;
    a->file_bytes = q->file.is_folder ? 0 : size;
    a->owner = info->st_uid;
    a->modified_s = (double)info->st_mtim.tv_sec + 1e-9 * (double)info->st_mtim.tv_nsec;
    a->offset = q->file.from_end ? (offset < size ? size - offset : 0) : offset;
    if (q->file.is_folder || q->file.bytes == 0 || a->offset >= size) {
        return;
    }
    /* Not more than there is: a small file costs little memory. What it has grown by meanwhile is for the next time. */
    const size_t bytes = q->file.bytes < size - a->offset ? q->file.bytes : (size_t)(size - a->offset);
    q->data = malloc(bytes + 1);
    if (!q->data) {
        a->error = ENOMEM;
        return;
    }
    a->data = q->data;
    a->bytes = read_it(fd, q->data, bytes, a->offset);
}

static void name_user(question *q)
{
    q->data = malloc(LS_USER_NAME_BYTES);
    if (!q->data) {
        q->answer.error = ENOMEM;
        return;
    }
    ls_user_name(q->file.uid, q->data);
    q->answer.data = q->data;
    q->answer.bytes = strlen(q->data);
}

static void work_on(question *q, identity *who)
{
    struct stat info;
    if (q->file.is_user) {
        name_user(q);
        return;
    }
    if (!become(who, q->file.uid, q->file.gid)) {
        q->answer.error = EPERM;
        return;
    }
    const int fd = open_it(q);
    if (fd < 0) {
        q->answer.error = errno == ELOOP || errno == ENOTDIR || errno == ENXIO ? EPERM : errno;
        return;
    }
    if (fstat(fd, &info) != 0) {
        q->answer.error = errno;
    } else if (q->file.is_folder ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode)) {
        q->answer.error = EPERM;
    } else {
        fill(q, fd, &info);
    }
    close(fd);
}

/* ---- a worker: its day ---- */

static bool is_ours(const question *q)
{
    return q->file.is_user || q->file.uid == geteuid();
}

/* Names are nobody's: they are asked for by us. */
static bool is_of_same_user(const question *a, const question *b)
{
    return a->file.is_user == b->file.is_user && (a->file.is_user || a->file.uid == b->file.uid);
}

static bool is_free(const desk *d, const question *wanted)
{
    uint32_t all = 0, going_on = 0, his = 0, his_going_on = 0;
    bool has_stuck = false;
    for (const question *q = d->at_work; q; q = q->next) {
        const bool goes_on = !q->is_abandoned;
        if (strcmp(q->folder, wanted->folder) == 0) {
            return false;
        }
        all++;
        going_on += goes_on;
        if (is_of_same_user(q, wanted)) {
            his++;
            his_going_on += goes_on;
            has_stuck = has_stuck || q->is_overdue;
        }
    }
    if (his_going_on >= (has_stuck ? GOING_ON_BESIDE_STUCK : GOING_ON_PER_USER)) {
        return false;
    }
    if (is_ours(wanted)) {
        return all < THREADS_MAX && his < FOR_US_MAX;
    }
    return all < THREADS_MAX - KEPT_FOR_US && his < PER_USER_MAX && (his == 0 || going_on < GOING_ON_MAX);
}

/* Where in the list, from `at` on, a question is whose folder and user have room; NULL: nowhere. */
static question **find_free(const desk *d, question **at)
{
    while (*at && !is_free(d, *at)) {
        at = &(*at)->next;
    }
    return *at ? at : NULL;
}

static void call_worker(desk *d);

/* The first question whose folder and user have room. Another worker is called for the second: this one may never come back. */
static question *take(desk *d)
{
    question **at = find_free(d, &d->todo);
    if (!at) {
        return NULL;
    }
    question *q = *at;
    *at = q->next;
    if (!q->next) {
        d->todo_end = at;
    }
    q->next = d->at_work;
    d->at_work = q;
    q->place = AT_WORK;
    if (find_free(d, at)) { /* what is before it had no room, and has none now */
        call_worker(d);
    }
    return q;
}

static void put_done(desk *d, question *q)
{
    const uint64_t one = 1;
    q->next = NULL;
    q->place = IN_DONE;
    *d->done_end = q;
    d->done_end = &q->next;
    (void)!write(d->event_fd, &one, sizeof one);
}

static void leave_work(desk *d, question *gone)
{
    for (question **at = &d->at_work; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    }
    d->stuck -= gone->is_overdue;
    if (gone->is_abandoned) {
        free_question(gone);
    } else {
        put_done(d, gone);
    }
}

/* False: nothing came for a while. */
static bool wait_for_work(desk *d)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_S;
    d->idle++;
    const int result = pthread_cond_timedwait(&d->work, &d->lock, &until);
    d->idle--;
    return result != ETIMEDOUT;
}

static void *worker(void *context)
{
    desk *d = context;
    identity who = {0};
    pthread_mutex_lock(&d->lock);
    d->starting--;
    for (bool stays = true; !d->is_closed;) {
        question *q = take(d);
        if (q) {
            pthread_mutex_unlock(&d->lock);
            work_on(q, &who);
            pthread_mutex_lock(&d->lock);
            leave_work(d, q);
            stays = true;
        } else if (stays) {
            stays = wait_for_work(d);
        } else {
            break;
        }
    }
    d->workers--;
    pthread_cond_signal(&d->gone);
    drop_desk(d);
    return NULL;
}

/*
 * With the lock. One is enough for many questions: who takes one calls the next. An idle one that was called twice takes one all the same.
 * No thread to be had: those that are there do it, or the limit ends it.
 */
static void call_worker(desk *d)
{
    if (d->idle > 0) {
        pthread_cond_signal(&d->work);
        return;
    }
    if (d->starting > 0 || d->workers >= THREADS_MAX) {
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
    if (pthread_create(&thread, &attributes, worker, d) == 0) {
        d->workers++;
        d->starting++;
        d->uses++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* With the lock: behind what may have made room while nobody looks for work. */
static void call_worker_for_more(desk *d)
{
    if (find_free(d, &d->todo)) {
        call_worker(d);
    }
}

/* ---- the loop's side ---- */

static void unlink_from(question **list, question ***end, const question *gone)
{
    for (question **at = list; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            if (!*at) {
                *end = at;
            }
            return;
        }
    }
}

static void deliver(void *context)
{
    ls_user_files *files = context;
    desk *d = files->desk;
    uint64_t count = 0;
    pthread_mutex_lock(&d->lock);
    (void)!read(d->event_fd, &count, sizeof count);
    question *q = d->done;
    if (q) {
        unlink_from(&d->done, &d->done_end, q);
    }
    if (d->done) { /* one by one: who hears of the first may forget the second, or all */
        count = 1;
        (void)!write(d->event_fd, &count, sizeof count);
    }
    pthread_mutex_unlock(&d->lock);
    if (!q) {
        return;
    }
    files->asked--;
    if (q->limit) {
        ls_env_timer_cancel(files->env, q->limit);
    }
    q->done(q->context, &q->answer);
    free_question(q);
}

static void limit_is_over(void *context)
{
    question *q = context;
    ls_user_files *files = q->files;
    desk *d = files->desk;
    const ls_user_file_done done = q->done;
    void *const done_context = q->context;
    pthread_mutex_lock(&d->lock);
    q->limit = 0;
    const place was = q->place;
    if (was == IN_TODO) {
        unlink_from(&d->todo, &d->todo_end, q);
    } else if (was == AT_WORK) {
        q->is_abandoned = q->is_overdue = true; /* it is the worker's from now on */
        d->stuck++;
        call_worker_for_more(d);
    }
    pthread_mutex_unlock(&d->lock);
    if (was == IN_DONE) {
        return; /* just in time */
    }
    if (was == IN_TODO) {
        free_question(q);
    }
    files->asked--;
    done(done_context, &(ls_user_file_answer){.error = ETIMEDOUT});
}

static bool hangs(const desk *d, const char *folder)
{
    for (const question *q = d->at_work; q; q = q->next) {
        if (q->is_overdue && strcmp(q->folder, folder) == 0) {
            return true;
        }
    }
    return false;
}

static question *new_question(ls_user_files *files, const ls_user_file *file)
{
    question *q = calloc(1, sizeof *q);
    char *path = NULL;
    LS_ASSERT(q && "out of memory for a question");
    *q = (question){.number = ++files->next_number, .files = files, .file = *file};
    q->folder = strdup(file->is_user ? "" : file->folder);
    LS_ASSERT(q->folder && (file->is_user || asprintf(&path, "%s/%s", file->folder, file->name) > 0));
    q->path = path;
    q->file.folder = q->file.name = NULL;
    q->file.bytes = file->bytes < LS_USER_FILE_BYTES_MAX ? file->bytes : LS_USER_FILE_BYTES_MAX;
    return q;
}

uint64_t ls_user_files_ask(ls_user_files *files, const ls_user_file *file, ls_user_file_done done,
                           void *context)
{
    desk *d = files->desk;
    question *q = new_question(files, file);
    q->done = done;
    q->context = context;
    pthread_mutex_lock(&d->lock);
    q->answer.error = files->asked >= LS_USER_FILES_ASKED_MAX ? EAGAIN : hangs(d, q->folder) ? EBUSY : 0;
    files->asked++;
    if (q->answer.error) {
        put_done(d, q);
    } else {
        q->limit = ls_env_timer_set(files->env, files->limit_ns, limit_is_over, q);
        *d->todo_end = q;
        d->todo_end = &q->next;
        if (is_free(d, q)) { /* else who makes room for it takes it */
            call_worker(d);
        }
    }
    const uint64_t number = q->number;
    pthread_mutex_unlock(&d->lock);
    return number;
}

static question *find(question *list, uint64_t number)
{
    while (list && list->number != number) {
        list = list->next;
    }
    return list;
}

void ls_user_files_forget(ls_user_files *files, uint64_t number)
{
    desk *d = files->desk;
    if (number == 0) {
        return;
    }
    pthread_mutex_lock(&d->lock);
    question *waits = find(d->todo, number), *done = find(d->done, number), *works = find(d->at_work, number);
    if (waits) {
        unlink_from(&d->todo, &d->todo_end, waits);
    } else if (done) {
        unlink_from(&d->done, &d->done_end, done);
    }
    works = works && !works->is_abandoned ? works : NULL;
    question *found = waits ? waits : done ? done : works;
    if (found) {
        files->asked--;
        if (found->limit) {
            ls_env_timer_cancel(files->env, found->limit);
        }
    }
    if (works) {
        works->is_abandoned = true;
        call_worker_for_more(d);
    } else if (found) {
        free_question(found);
    }
    pthread_mutex_unlock(&d->lock);
}

/* ---- life ---- */

ls_status ls_user_files_create(ls_env *env, uint64_t limit_ns, ls_user_files **files_out)
{
    ls_user_files *files = calloc(1, sizeof *files);
    desk *d = calloc(1, sizeof *d);
    LS_ASSERT(files && d && "out of memory for files of users");
    *files = (ls_user_files){.env = env, .limit_ns = limit_ns, .desk = d};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->gone, NULL);
    d->todo_end = &d->todo;
    d->done_end = &d->done;
    d->uses = 1;
    d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int error =
        d->event_fd < 0 ? errno : -ls_env_real_watch(env, d->event_fd, deliver, files, &files->watch);
    if (error) {
        pthread_mutex_lock(&d->lock);
        drop_desk(d);
        free(files);
        return ls_fail_errno(error, "can't read files of users");
    }
    *files_out = files;
    return LS_OK;
}

/* Those that only waited end at once; a call under way is given a moment, unless it is known to hang. */
static void wait_for_workers(desk *d)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    while (d->workers > d->stuck && pthread_cond_timedwait(&d->gone, &d->lock, &until) != ETIMEDOUT) {
    }
}

void ls_user_files_destroy(ls_user_files *files)
{
    if (!files) {
        return;
    }
    desk *d = files->desk;
    for (;;) {
        pthread_mutex_lock(&d->lock);
        const question *works = d->at_work;
        while (works && works->is_abandoned) {
            works = works->next;
        }
        const question *next = d->todo ? d->todo : d->done ? d->done : works;
        const uint64_t number = next ? next->number : 0;
        pthread_mutex_unlock(&d->lock);
        if (number == 0) {
            break;
        }
        ls_user_files_forget(files, number);
    }
    ls_env_real_unwatch(files->env, files->watch);
    pthread_mutex_lock(&d->lock);
    d->is_closed = true;
    pthread_cond_broadcast(&d->work);
    wait_for_workers(d);
    drop_desk(d);
    free(files);
}
