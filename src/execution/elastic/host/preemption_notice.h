// SPDX-License-Identifier: Apache-2.0
/*
 * Preemption notices: the word that this machine is about to be taken away, and in how many
 * seconds.
 *
 * A watch asks its sources, one small function each (preemption_sources.c), on a thread of its own,
 * so that an address that does not answer never delays a step:
 *
 *   file    a file that appears; it may contain the seconds that are left ("30")
 *   aws     EC2's metadata (IMDSv2): spot/instance-action; a rebalance recommendation is only
 *           passed on
 *   gcp     Compute Engine's metadata: instance/preempted and instance/maintenance-event
 *   azure   scheduled events that concern this machine
 *
 * The watch does not act: whoever started it takes the notices and decides (the trainer saves and
 * ends with exit code 75; with host_agent.h the host hands its work over).
 *
 * LOCKSTEP_METADATA_URL replaces the address of the clouds (for tests): "http://127.0.0.1:1234".
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_PREEMPTION_NOTICE_H
#define LS_EXECUTION_ELASTIC_HOST_PREEMPTION_NOTICE_H

#include "base/status.h"
#include "config/run_file.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ls_preemption_source {
    LS_PREEMPTION_FILE,
    LS_PREEMPTION_AWS,
    LS_PREEMPTION_GCP,
    LS_PREEMPTION_AZURE,
    LS_PREEMPTION_SOURCES
} ls_preemption_source;

typedef struct ls_preemption_notice {
    ls_preemption_source source;
    bool leave;       /* false: only a warning, nothing need be done yet */
    double grace_s;   /* seconds from when it was seen until the machine is gone; 0: not known */
    char action[160]; /* what the source says: "terminate at 2026-11-21T17:00:00Z" */
} ls_preemption_notice;

typedef struct ls_preemption_options {
    uint32_t sources; /* bits 1 << ls_preemption_source; 0: only the file, if there is a path */
    /* A cloud that cannot be reached at the first look is not asked again: the machine is not in
     * it. */
    bool drop_absent;
    const char *file; /* NULL: no file to look for */
    /* Seconds between two looks at a cloud; the file is looked at at least every 100 ms. */
    double poll_s;
} ls_preemption_options;

typedef struct ls_preemption_watch ls_preemption_watch;

/* "file", "aws", "gcp", "azure". */
const char *ls_preemption_source_name(ls_preemption_source source);
/* LS_PREEMPTION_SOURCES: no source has this name. */
ls_preemption_source ls_preemption_source_named(const char *name);
/* The seconds that the source grants at least, according to its documentation; 0: not known. */
double ls_preemption_source_grace_s(ls_preemption_source source);

/* Errors: LS_ERR_MEMORY, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_preemption_watch_start(const ls_preemption_options *options,
                                                  ls_preemption_watch **watch_out);
/* A watch over what a run file and LOCKSTEP_NOTICE_FILE name; *watch_out is NULL when they name
 * nothing. Errors: also LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_preemption_watch_for(const ls_run_job *job, ls_preemption_watch **watch_out);
/* The next notice that was not taken yet. From any thread; reads a single word when there is
 * none. NULL allowed. */
bool ls_preemption_watch_take(ls_preemption_watch *watch, ls_preemption_notice *notice_out);
/* Sources that are still being asked, as bits. */
uint32_t ls_preemption_watch_sources(const ls_preemption_watch *watch);
/* Ends the thread, within about a second. NULL allowed. */
void ls_preemption_watch_stop(ls_preemption_watch *watch);

/* ---- sources: for preemption_notice.c and tests ---- */

typedef enum ls_preemption_sight {
    LS_PREEMPTION_NOTHING, /* the source answered, and announces nothing */
    LS_PREEMPTION_SEEN,    /* a notice */
    LS_PREEMPTION_ABSENT,  /* no answer, or not a sensible one; ls_error_text says which */
} ls_preemption_sight;

/* What a source remembers between two looks, and what it may use. */
typedef struct ls_preemption_asker {
    const char *file;
    char base_url[128];
    char token[256]; /* of aws */
    char name[128];  /* of azure: the name of this machine */
    bool warned;     /* a warning was passed on; of the file: it was there, and empty */
    const _Atomic uint32_t *cancel;
} ls_preemption_asker;

/* Reads the environment: call it before starting threads that read it. file and cancel are
 * borrowed. */
void ls_preemption_asker_init(ls_preemption_asker *asker, ls_preemption_source source, const char *file,
                              const _Atomic uint32_t *cancel);
/* One look; blocks for two seconds at most for each request. The caller sets notice_out->source. */
ls_preemption_sight ls_preemption_look(ls_preemption_source source, ls_preemption_asker *asker,
                                       ls_preemption_notice *notice_out);

/* The answers of the clouds; pure functions. now_s: seconds since 1970. False, with notice_out
 * untouched, when the answer announces nothing or makes no sense. */
bool ls_preemption_read_file(const char *text, size_t bytes, ls_preemption_notice *notice_out);
bool ls_preemption_read_aws(const char *text, size_t bytes, double now_s, ls_preemption_notice *notice_out);
bool ls_preemption_read_gcp_maintenance(const char *text, size_t bytes, ls_preemption_notice *notice_out);
bool ls_preemption_read_azure(const char *text, size_t bytes, const char *machine, double now_s,
                              ls_preemption_notice *notice_out);

#endif
