// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/share.h"

#include "base/assert.h"
#include "storage/checkpoint/files.h"

#include <stdlib.h>

enum {
    /* number of checkpoints that are tried */
    PIECE_BYTES = 1 << 20,
    LOOKS_MAX = 8,
    /* number of files that are read: if the newest is damaged, the next one is compared */
    READINGS_MAX = 2
};

typedef struct share {
    ls_arena *arena;
    ls_share_options options;
    uint64_t *steps; /* ascending */
    size_t left;     /* steps[left - 1] is the candidate */
    unsigned looks, readings;
    const char *path;
    int64_t number;
    unsigned char *buffer;
    size_t buffer_bytes;
    uint64_t read; /* bytes of the candidate compared so far, all equal */
    bool is_same;  /* to its end */
} share;

static void next_candidate(share *self);
static void read_piece(share *self);

static void file_closed(void *context, int64_t result)
{
    (void)result; /* it was only read */
    share *self = context;
    if (self->is_same) {
        self->options.done(self->options.context, self->path);
        return;
    }
    next_candidate(self);
}

static void close_file(share *self)
{
    ls_env_disk_close(self->options.env, self->number, file_closed, self);
}

static void piece_read(void *context, int64_t result)
{
    share *self = context;
    const ls_share_options *o = &self->options;
    if (result == 0) {
        self->is_same = self->read == o->bytes;
    }
    if (result <= 0 || (uint64_t)result > o->bytes - self->read ||
        !o->same(o->context, self->read, self->buffer, (size_t)result)) {
        close_file(self);
        return;
    }
    self->read += (uint64_t)result;
    read_piece(self);
}

static void read_piece(share *self)
{
    ls_env_disk_read(self->options.env, self->number, self->buffer, self->buffer_bytes, self->read,
                     piece_read, self);
}

static void file_opened(void *context, int64_t result)
{
    share *self = context;
    if (result < 0) {
        next_candidate(self);
        return;
    }
    self->number = result;
    self->readings++;
    self->read = 0;
    self->is_same = false;
    read_piece(self);
}

static void next_candidate(share *self)
{
    if (self->left == 0 || self->looks == LOOKS_MAX || self->readings == READINGS_MAX) {
        self->options.done(self->options.context, NULL);
        return;
    }
    self->looks++;
    self->path = ls_arena_printf(self->arena, "%s/%llu/%s", self->options.root,
                                 (unsigned long long)self->steps[--self->left], self->options.name);
    ls_env_disk_open(self->options.env, self->path, LS_ENV_READ, file_opened, self);
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void root_listed(void *context, int64_t result, const char *const *names, size_t count)
{
    share *self = context;
    count = result < 0 ? 0 : count;
    self->steps = ls_arena_new(self->arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        self->left += ls_checkpoint_name_step(names[i], &self->steps[self->left]);
    }
    qsort(self->steps, self->left, sizeof *self->steps, compare_steps);
    next_candidate(self);
}

void ls_share_find(ls_arena *arena, const ls_share_options *options)
{
    LS_ASSERT(arena && options->env && options->root && options->name && options->same && options->done);
    share *self = ls_arena_new(arena, share, 1);
    *self = (share){.arena = arena, .options = *options};
    self->buffer_bytes = options->bytes < PIECE_BYTES ? (size_t)options->bytes + 1 : PIECE_BYTES;
    self->buffer = ls_arena_new(arena, unsigned char, self->buffer_bytes);
    ls_env_disk_list(options->env, options->root, root_listed, self);
}
