// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks in a container (job.image): the job's program is run by the container tool that this
 * machine has. The tool, not the queue, fetches and caches images.
 *
 * The container sees the network, the shared memory and the current folder of the machine, so that
 * ranks meet as they do without an image and files that they write belong to the user.
 */
#include "base/file.h"
#include "orchestration/engines/local/runner_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct words {
    ls_arena *arena;
    const char **items;
    size_t count;
} words;

static void add(words *w, const char *word)
{
    w->items[w->count++] = word;
}

/* In the order in which they are looked for. */
static const char *const tools[] = {"podman", "docker", "apptainer", "singularity"};
enum { TOOLS = sizeof tools / sizeof tools[0], APPTAINER = 2 };

static bool has_program(const char *path, const char *name)
{
    for (const char *at = path; *at;) {
        const size_t bytes = strcspn(at, ":");
        char file[4096];
        const int length = snprintf(file, sizeof file, "%.*s/%s", (int)bytes, at, name);
        if (bytes > 0 && length < (int)sizeof file && access(file, X_OK) == 0) {
            return true;
        }
        at += bytes + (at[bytes] == ':');
    }
    return false;
}

/* What the image has of its own. */
static bool is_of_image(const char *variable)
{
    static const char *const names[] = {"PATH=", "HOME=", "PWD=", "USER=", "LOGNAME=", "SHELL="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void add_options(const json_t *ticket, words *w)
{
    size_t i;
    json_t *option;
    json_array_foreach(json_object_get(ticket, "image_options"), i, option)
    {
        add(w, json_string_value(option));
    }
}

/* podman and docker. */
static void add_run(const ls_local_job *job, char *const *variables, bool is_podman, words *w)
{
    add(w, "run");
    add(w, "--rm");
    if (!is_podman) { /* podman needs another package for it */
        add(w, "--init");
    }
    add(w, "--network=host");
    add(w, "--ipc=host");
    add(w, ls_arena_printf(w->arena, "--volume=%s:%s", job->directory, job->directory));
    add(w, ls_arena_printf(w->arena, "--workdir=%s", job->directory));
    if (geteuid() != 0) {
        add(w, is_podman ? "--userns=keep-id"
                         : ls_arena_printf(w->arena, "--user=%ld:%ld", (long)geteuid(), (long)getegid()));
    }
    for (char *const *at = variables; *at; at++) {
        if (!is_of_image(*at)) {
            add(w, ls_arena_printf(w->arena, "--env=%.*s", (int)strcspn(*at, "="), *at));
        }
    }
    if (job->has_gpus) {
        add(w, is_podman ? "--device=nvidia.com/gpu=all" : "--gpus=all");
    }
}

static void add_exec(const ls_local_job *job, words *w)
{
    add(w, "exec");
    add(w, ls_arena_printf(w->arena, "--bind=%s", job->directory));
    add(w, ls_arena_printf(w->arena, "--pwd=%s", job->directory));
    if (job->has_gpus) {
        add(w, "--nv");
    }
}

ls_status ls_local_container_words(ls_local_job *job, char *const *variables, const char *image,
                                   const char ***argv_out)
{
    const char *path = "";
    size_t tool = 0, count = json_array_size(json_object_get(job->ticket, "image_options"));
    for (char *const *at = variables; *at; at++, count++) {
        path = strncmp(*at, "PATH=", 5) == 0 ? *at + 5 : path;
    }
    while (tool < TOOLS && !has_program(path, tools[tool])) {
        tool++;
    }
    if (tool == TOOLS) {
        return ls_fail(LS_ERR_INVALID,
                       "job.image is %s, but this machine has no podman, docker, apptainer or singularity in "
                       "PATH (%.200s): install one of them, or remove job.image",
                       image, path);
    }
    for (const char *const *at = job->argv; *at; at++) {
        count++;
    }
    words w = {.arena = &job->arena, .items = ls_arena_new(&job->arena, const char *, count + 16)};
    add(&w, tools[tool]);
    if (tool < APPTAINER) {
        add_run(job, variables, tool == 0, &w);
    } else {
        add_exec(job, &w);
    }
    add_options(job->ticket, &w);
    add(&w, image);
    for (const char *const *at = job->argv; *at; at++) {
        add(&w, *at);
    }
    *argv_out = w.items; /* ends with NULL, because memory of an arena is zeroed */
    return LS_OK;
}
