// SPDX-License-Identifier: Apache-2.0
#include "comm/flight/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* A power of two. */
    SITE_CACHE = 1024,
    /* Further call sites are looked up by name each time. */
    SITE_CACHE_USED = 768,
    SPAN_NS_MIN = 20000,
};

typedef struct site_entry {
    /* Set last; NULL: the entry is free. */
    const char *file;
    uint32_t line;
    uint16_t index;
} site_entry;

struct ls_flight {
    ls_flight_file *file;
    /* Begin of the activity that may still become a span. It is earlier than now.since_ns if
     * several short ones were combined. */
    uint64_t span_begin_ns;
    pthread_mutex_t site_lock;
    uint32_t site_used;
    site_entry sites[SITE_CACHE];
};

ls_flight_file *ls_flight_mapped;
static ls_flight *installed;
static _Atomic uint64_t *pulse;

const char *ls_comm_kind_name(ls_comm_kind kind)
{
    static const char *const names[LS_COMM_KIND_COUNT] = {
        [LS_COMM_NONE] = "none",
        [LS_COMM_ALL_REDUCE] = "all_reduce",
        [LS_COMM_REDUCE_SCATTER] = "reduce_scatter",
        [LS_COMM_ALL_GATHER] = "all_gather",
        [LS_COMM_BROADCAST] = "broadcast",
        [LS_COMM_ALL_TO_ALL] = "all_to_all",
        [LS_COMM_ALL_TO_ALL_BLOCKS] = "all_to_all_blocks",
        [LS_COMM_SEND] = "send",
        [LS_COMM_RECEIVE] = "receive",
        [LS_COMM_BARRIER] = "barrier",
        [LS_COMM_SPLIT] = "split",
        [LS_COMM_ALLOC] = "alloc",
        [LS_COMM_TREE_REDUCE] = "tree_reduce",
        [LS_COMM_STEP] = "step",
    };
    return (unsigned)kind < LS_COMM_KIND_COUNT ? names[kind] : "?";
}

const char *ls_activity_name(ls_activity activity)
{
    static const char *const names[LS_ACTIVITY_COUNT] = {
        [LS_ACTIVITY_STARTING] = "starting", [LS_ACTIVITY_IDLE] = "idle",
        [LS_ACTIVITY_DATA] = "data",         [LS_ACTIVITY_FORWARD] = "forward",
        [LS_ACTIVITY_BACKWARD] = "backward", [LS_ACTIVITY_REDUCE] = "reduce",
        [LS_ACTIVITY_UPDATE] = "update",     [LS_ACTIVITY_COMM] = "comm",
        [LS_ACTIVITY_OTHER] = "own code",
    };
    return (unsigned)activity < LS_ACTIVITY_COUNT ? names[activity] : "?";
}

/* ---- the file ---- */

static void read_boot_id(char boot_id_out[40])
{
    memset(boot_id_out, 0, 40);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fscanf(file, "%39s", boot_id_out) != 1) {
            boot_id_out[0] = 0;
        }
        fclose(file);
    }
}

/* Field 22 of /proc/self/stat, counted from the last ')', which ends field 2. 0 if it can't be
 * read. */
static uint64_t read_pid_start(void)
{
    char text[1024] = {0};
    FILE *file = fopen("/proc/self/stat", "re");
    const size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    text[bytes] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void fill_header(ls_flight_header *header, uint32_t rank, uint32_t size, uint64_t epoch)
{
    header->version = LS_FLIGHT_VERSION;
    header->file_bytes = sizeof(ls_flight_file);
    header->rank = rank;
    header->size = size;
    header->epoch = epoch;
    header->start_ns = ls_clock_monotonic_ns();
    header->start_wall_s = ls_clock_wall_s();
    header->pid = getpid();
    header->pid_start = read_pid_start();
    gethostname(header->host, sizeof header->host - 1);
    read_boot_id(header->boot_id);
    memcpy(header->magic, LS_FLIGHT_MAGIC, sizeof header->magic);
}

/* Creates a file of the right size, filled with zeros. A reader of an earlier file at this path is
 * not affected: that was another file. */
static ls_status create_file(const char *path, ls_flight_file **file_out)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        return ls_fail_errno(errno, "can't replace the flight recorder's file %s", path);
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create the flight recorder's file %s", path);
    }
    /* Allocates the space now: a full disk must be an error here and not a SIGBUS later. */
    int error = posix_fallocate(fd, 0, sizeof(ls_flight_file));
    void *memory = MAP_FAILED;
    if (error == 0) {
        memory = mmap(NULL, sizeof(ls_flight_file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        error = memory == MAP_FAILED ? errno : 0;
    }
    close(fd);
    if (error != 0) {
        unlink(path);
        return ls_fail_errno(error, "can't map the flight recorder's file %s (%zu bytes)", path,
                             sizeof(ls_flight_file));
    }
    *file_out = memory;
    return LS_OK;
}

ls_status ls_flight_create(const char *path, uint32_t rank, uint32_t size, uint64_t epoch,
                           ls_flight **flight_out)
{
    ls_flight *flight = calloc(1, sizeof *flight);
    if (!flight) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the flight recorder");
    }
    const ls_status status = create_file(path, &flight->file);
    if (status != LS_OK) {
        free(flight);
        return status;
    }
    pthread_mutex_init(&flight->site_lock, NULL);
    ls_flight_file *file = flight->file;
    file->sites[0][0] = '?';
    file->site_count = 1;
    fill_header(&file->header, rank, size, epoch);
    file->now.since_ns = file->header.start_ns;
    flight->span_begin_ns = file->header.start_ns;
    *flight_out = flight;
    return LS_OK;
}

void ls_flight_close(ls_flight *flight)
{
    if (!flight) {
        return;
    }
    if (flight == installed) {
        ls_flight_install(NULL);
    }
    LS_FLIGHT_PUT(flight->file->header.outcome,
                  flight->file->text_bytes > 0 ? LS_FLIGHT_ENDED_BADLY : LS_FLIGHT_FINISHED);
    munmap(flight->file, sizeof *flight->file);
    pthread_mutex_destroy(&flight->site_lock);
    free(flight);
}

void ls_flight_install(ls_flight *flight)
{
    installed = flight;
    ls_flight_mapped = flight ? flight->file : NULL;
}

ls_flight *ls_flight_installed(void)
{
    return installed;
}

void ls_flight_last_words(const char *text)
{
    if (!installed) {
        return;
    }
    ls_flight_file *file = installed->file;
    const size_t bytes = strnlen(text, LS_FLIGHT_TEXT_BYTES - 1);
    LS_FLIGHT_PUT(file->text_bytes, 0);
    memcpy(file->text, text, bytes);
    LS_FLIGHT_PUT(file->text_bytes, (uint32_t)bytes);
}

void ls_flight_note_exit(const char *path, int wait_status)
{
    ls_flight_header header;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return;
    }
    if (pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
        memcmp(header.magic, LS_FLIGHT_MAGIC, sizeof header.magic) == 0 &&
        header.version == LS_FLIGHT_VERSION) {
        const int32_t status[2] = {wait_status, 1};
        _Static_assert(offsetof(ls_flight_header, has_exit_status) ==
                           offsetof(ls_flight_header, exit_status) + 4,
                       "written together");
        const ssize_t written =
            pwrite(fd, status, sizeof status, (off_t)offsetof(ls_flight_header, exit_status));
        (void)written; /* a hint for readers; nothing depends on it */
    }
    close(fd);
}

/* ---- activity ---- */

static void put_span(ls_flight_file *file, uint64_t begin_ns, uint64_t end_ns)
{
    const uint64_t number = file->span_head;
    ls_flight_span *span = &file->spans[number % LS_FLIGHT_SPANS];
    LS_FLIGHT_PUT(span->begin_ns, begin_ns);
    LS_FLIGHT_PUT(span->end_ns, end_ns);
    LS_FLIGHT_PUT(span->step, (uint32_t)file->now.step);
    LS_FLIGHT_PUT(span->leaf, file->now.leaf);
    LS_FLIGHT_PUT(span->activity, file->now.activity);
    LS_FLIGHT_PUT(span->number, file->now.number);
    LS_FLIGHT_PUT(file->span_head, number + 1);
}

void ls_flight_pulse(_Atomic uint64_t *alive_ns)
{
    pulse = alive_ns;
}

void ls_flight_activity(ls_activity activity, uint32_t number)
{
    ls_flight *flight = installed;
    const uint64_t now_ns = flight || pulse ? ls_clock_monotonic_ns() : 0;
    if (pulse) {
        atomic_store_explicit(pulse, now_ns, memory_order_relaxed);
    }
    if (!flight) {
        return;
    }
    ls_flight_file *file = flight->file;
    ls_flight_now *now = &file->now;
    if (now_ns - flight->span_begin_ns >= SPAN_NS_MIN) {
        put_span(file, flight->span_begin_ns, now_ns);
        flight->span_begin_ns = now_ns;
    } else if (now->activity != (uint32_t)activity) {
        flight->span_begin_ns = now_ns;
    }
    const uint64_t version = now->version;
    LS_FLIGHT_PUT(now->version, version + 1);
    LS_FLIGHT_PUT(now->since_ns, now_ns);
    LS_FLIGHT_PUT(now->activity, (uint32_t)activity);
    LS_FLIGHT_PUT(now->number, number);
    LS_FLIGHT_PUT(now->version, version + 2);
}

void ls_flight_position(uint64_t step, uint32_t leaf)
{
    if (!installed) {
        return;
    }
    ls_flight_now *now = &installed->file->now;
    const uint64_t version = now->version;
    LS_FLIGHT_PUT(now->version, version + 1);
    LS_FLIGHT_PUT(now->step, step);
    LS_FLIGHT_PUT(now->leaf, leaf);
    LS_FLIGHT_PUT(now->version, version + 2);
}

/* ---- communicators ---- */

uint8_t ls_flight_join(uint32_t comm_id, uint32_t rank, uint32_t size, const char *name)
{
    if (!installed) {
        return 0;
    }
    /* Slots of closed communicators are reused when no unused one is left. Readers see the id
     * change. */
    ls_flight_comm *comms = installed->file->comms;
    for (uint32_t wanted = LS_FLIGHT_COMM_FREE; wanted <= LS_FLIGHT_COMM_CLOSED; wanted += 2) {
        for (uint32_t slot = 1; slot < LS_FLIGHT_COMMS; slot++) {
            ls_flight_comm *comm = &comms[slot];
            if (comm->state != wanted) {
                continue;
            }
            LS_FLIGHT_PUT(comm->state, LS_FLIGHT_COMM_FREE);
            LS_FLIGHT_PUT(comm->id, comm_id);
            LS_FLIGHT_PUT(comm->rank, rank);
            LS_FLIGHT_PUT(comm->size, size);
            LS_FLIGHT_PUT(comm->entered, 0);
            LS_FLIGHT_PUT(comm->left, 0);
            snprintf(comm->name, sizeof comm->name, "%s", name ? name : "world");
            LS_FLIGHT_PUT(comm->state, LS_FLIGHT_COMM_OPEN);
            return (uint8_t)slot;
        }
    }
    return 0;
}

void ls_flight_leave(uint8_t slot)
{
    if (installed && slot > 0 && slot < LS_FLIGHT_COMMS) {
        LS_FLIGHT_PUT(installed->file->comms[slot].state, LS_FLIGHT_COMM_CLOSED);
    }
}

/* ---- call sites ---- */

const char *ls_site_path(const char *file)
{
    static const char *const roots[] = {"/src/", "/tests/", "/examples/", "/bench/"};
    const char *from = NULL; /* the last occurrence of a root */
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        for (const char *at = strstr(file, roots[i]); at; at = strstr(at + 1, roots[i])) {
            from = !from || at + 1 > from ? at + 1 : from;
        }
    }
    enum { TAIL = 55 };
    const char *start = from ? from : file;
    const size_t bytes = strlen(start);
    return bytes > TAIL ? start + bytes - TAIL : start;
}

/* The entry of a call site (*known_out), or else the free entry where it belongs. */
static site_entry *probe(ls_flight *flight, const char *file, uint32_t line, bool *known_out)
{
    uint64_t at = ((uint64_t)(uintptr_t)file + line) * 0x9e3779b97f4a7c15u >> 54;
    for (;; at++) {
        site_entry *entry = &flight->sites[at % SITE_CACHE];
        const char *found = LS_FLIGHT_GET(entry->file);
        if (!found || (found == file && entry->line == line)) {
            *known_out = found != NULL;
            return entry;
        }
    }
}

/* The index of a name, which is added if it is new and there is room; otherwise 0. Call it with the
 * lock held. */
static uint16_t intern_name(ls_flight_file *file, const char *path, uint32_t line)
{
    char name[LS_FLIGHT_SITE_BYTES] = {0};
    if (line > 0) {
        snprintf(name, sizeof name, "%.55s:%u", ls_site_path(path), line % 10000000);
    } else {
        snprintf(name, sizeof name, "%.55s", path);
    }
    for (uint32_t i = 0; i < file->site_count; i++) {
        if (strncmp(file->sites[i], name, sizeof name) == 0) {
            return (uint16_t)i;
        }
    }
    if (file->site_count == LS_FLIGHT_SITES) {
        return 0;
    }
    const uint32_t index = file->site_count;
    memcpy(file->sites[index], name, sizeof name);
    LS_FLIGHT_PUT(file->site_count, index + 1);
    return (uint16_t)index;
}

static uint16_t intern(ls_flight *flight, const char *file, uint32_t line)
{
    pthread_mutex_lock(&flight->site_lock);
    bool known = false;
    site_entry *entry = probe(flight, file, line, &known);
    uint16_t index = entry->index;
    if (!known) {
        index = intern_name(flight->file, file, line);
        if (flight->site_used < SITE_CACHE_USED) {
            flight->site_used++;
            entry->line = line;
            entry->index = index;
            LS_FLIGHT_PUT(entry->file, file);
        }
    }
    pthread_mutex_unlock(&flight->site_lock);
    return index;
}

uint16_t ls_flight_site(const char *file, uint32_t line)
{
    ls_flight *flight = installed;
    if (!flight || !file) {
        return 0;
    }
    bool known = false;
    const site_entry *entry = probe(flight, file, line, &known);
    return known ? entry->index : intern(flight, file, line);
}
