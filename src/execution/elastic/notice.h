// SPDX-License-Identifier: Apache-2.0
/*
 * Notices: a word that this machine is about to be taken away, and in how many seconds.
 *
 * A watch looks at its sources, one small function each (notice_sources.c), on a thread of its own, so that an address that does not answer
 * never keeps a step waiting:
 *
 *   file    a file that appears; it may hold the seconds that are left ("30")
 *   aws     EC2's metadata (IMDSv2): spot/instance-action; a rebalance recommendation is only passed on
 *   gcp     Compute Engine's metadata: instance/preempted and instance/maintenance-event
 *   azure   scheduled events that concern this machine
 *
 * What follows is not the watch's affair: who started it takes the notices and acts (trainer: saves and ends with 75; host_agent.h: its
 * host hands over).
 *
 * LOCKSTEP_METADATA_URL replaces the clouds' address (for tests): "http://127.0.0.1:1234".
 */
#ifndef LS_EXECUTION_ELASTIC_NOTICE_H
#define LS_EXECUTION_ELASTIC_NOTICE_H

#include "base/status.h"
#include "planning/run_file.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ls_notice_source {
    LS_NOTICE_FILE,
    LS_NOTICE_AWS,
    LS_NOTICE_GCP,
    LS_NOTICE_AZURE,
    LS_NOTICE_SOURCES
} ls_notice_source;

typedef struct ls_notice {
    ls_notice_source source;
    bool leave;       /* false: a warning, nothing need be done yet */
    double grace_s;   /* from when it was seen until the machine is gone; 0: not known */
    char action[160]; /* what the source says: "terminate at 2026-11-21T17:00:00Z" */
} ls_notice;

typedef struct ls_notice_options {
    uint32_t sources; /* bit 1 << ls_notice_source; 0: only the file, if there is a path */
    bool
        drop_absent; /* clouds that can't be reached at the first look are not asked again: the machine is none of theirs */
    const char *file; /* NULL: no such source */
    double poll_s;    /* between two looks at a cloud; the file is looked at every 100 ms, or more often */
} ls_notice_options;

typedef struct ls_notice_watch ls_notice_watch;

/* "file", "aws", "gcp", "azure". */
const char *ls_notice_source_name(ls_notice_source source);
/* LS_NOTICE_SOURCES: none of that name. */
ls_notice_source ls_notice_source_named(const char *name);
/* Seconds that the source grants at least, as its documentation says; 0: not known. */
double ls_notice_source_grace_s(ls_notice_source source);

/* Errors: LS_ERR_MEMORY, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_notice_watch_start(const ls_notice_options *options, ls_notice_watch **watch_out);
/* A watch over what a run file and LOCKSTEP_NOTICE_FILE name. *watch_out: NULL when that is nobody. Errors: also LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_notice_watch_for(const ls_run_job *job, ls_notice_watch **watch_out);
/* The next notice that was not taken yet. Any thread; a look at one word when there is none. NULL allowed. */
bool ls_notice_watch_take(ls_notice_watch *watch, ls_notice *notice_out);
/* Sources that are still asked; bits. */
uint32_t ls_notice_watch_sources(const ls_notice_watch *watch);
/* Ends the thread, within about a second. NULL allowed. */
void ls_notice_watch_stop(ls_notice_watch *watch);

/* ---- sources: inside of notice.c, and for tests ---- */

typedef enum ls_notice_sight {
    LS_NOTICE_NOTHING, /* asked, and nothing is to come */
    LS_NOTICE_SEEN,
    LS_NOTICE_ABSENT, /* no answer, or none that makes sense; ls_error_text says which */
} ls_notice_sight;

/* What a source remembers between looks, and what it may use. */
typedef struct ls_notice_asker {
    const char *file;
    char base_url[128];
    char token[256]; /* aws */
    char name[128];  /* azure: this machine */
    bool warned;     /* a warning was passed on; file: it was there, and empty */
    const _Atomic uint32_t *cancel;
} ls_notice_asker;

/* Reads the environment: before threads that look at it. file and cancel are borrowed. */
void ls_notice_asker_init(ls_notice_asker *asker, ls_notice_source source, const char *file,
                          const _Atomic uint32_t *cancel);
/* One look; blocks for two seconds at most per question. notice_out: source is set by the caller. */
ls_notice_sight ls_notice_look(ls_notice_source source, ls_notice_asker *asker, ls_notice *notice_out);

/* Answers of the clouds, pure. now_s: seconds since 1970. False, and notice_out untouched, when they say nothing or make no sense. */
bool ls_notice_read_file(const char *text, size_t bytes, ls_notice *notice_out);
bool ls_notice_read_aws(const char *text, size_t bytes, double now_s, ls_notice *notice_out);
bool ls_notice_read_gcp_maintenance(const char *text, size_t bytes, ls_notice *notice_out);
bool ls_notice_read_azure(const char *text, size_t bytes, const char *machine, double now_s,
                          ls_notice *notice_out);

#endif
