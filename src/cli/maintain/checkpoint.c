// SPDX-License-Identifier: Apache-2.0
/* checkpoint ls|show|verify|prune|pin|unpin, and state-hash. */
#include "storage/checkpoint/checkpoint.h"

#include "base/file.h"
#include "cli/command.h"
#include "config/run_file.h"
#include "execution/run/meter.h"
#include "storage/checkpoint/manifest.h"
#include "storage/mirror/mirror.h"

#include <inttypes.h>
#include <stdio.h>

/* The folder of checkpoints: a run directory holds it as checkpoints/. */
static const char *root_of(ls_arena *arena, const char *path)
{
    const char *below = ls_path_join(arena, path, "checkpoints");
    return ls_path_is_dir(below) ? below : path;
}

static ls_status open_named(const ls_invocation *invocation, ls_checkpoint **checkpoint_out)
{
    const char *path = NULL;
    LS_TRY(ls_checkpoint_resolve(invocation->arena, invocation->words[0], &path));
    return ls_checkpoint_open(path, checkpoint_out);
}

/* ---- ls ---- */

typedef struct json_settings {
    bool json;
} json_settings;

static const ls_option json_options[] = {
    LS_ROW_JSON(json_settings),
};

/* The rules by which the run prunes; false when there is no run file beside the checkpoints. */
static bool find_rules(ls_arena *arena, const char *root, ls_checkpoint_prune_options *options_out)
{
    const char *path = ls_path_join(arena, ls_path_dirname(arena, root), "run.yaml");
    ls_run_file run;
    if (!ls_path_exists(path) || ls_run_file_load(path, NULL, 0, arena, &run) != LS_OK) {
        return false;
    }
    *options_out = (ls_checkpoint_prune_options){.keep_last = run.checkpoint.keep_last,
                                                 .keep_best = run.checkpoint.keep_best,
                                                 .keep_every = run.checkpoint.keep_every};
    if (ls_meter_room(&run.checkpoint, &options_out->bytes_max) != LS_OK) {
        ls_error_clear(); /* the price is that of a queue */
    }
    return true;
}

/* Why each checkpoint is kept, in words; NULL when the rules are not known. */
static const char **reasons_of(ls_arena *arena, const char *root, const ls_checkpoint_entry *entries,
                               size_t count)
{
    ls_checkpoint_prune_options rules;
    if (!find_rules(arena, root, &rules)) {
        return NULL;
    }
    unsigned *reasons = ls_arena_new(arena, unsigned, count);
    const char **texts = ls_arena_new(arena, const char *, count);
    ls_checkpoint_reasons(entries, count, &rules, reasons);
    for (size_t i = 0; i < count; i++) {
        texts[i] = ls_checkpoint_reasons_text(arena, reasons[i]);
    }
    return texts;
}

static void print_entries(const ls_checkpoint_entry *entries, size_t count, const char *const *reasons)
{
    printf("%10s  %10s  %9s  %-6s %-16s %s\n", "step", "parameters", "MiB", "pinned", "validation loss",
           reasons ? "kept as" : "");
    for (size_t i = 0; i < count; i++) {
        const ls_checkpoint_entry *e = &entries[i];
        if (e->problem) {
            printf("%10" PRIu64 "  damaged: %s\n", e->step, e->problem);
            continue;
        }
        printf("%10" PRIu64 "  %10" PRIu64 "  %9.1f  %-6s ", e->step, e->parameters,
               (double)e->bytes / 1048576.0, e->pinned ? "yes" : "");
        char loss[32] = "-";
        if (e->has_val_loss) {
            snprintf(loss, sizeof loss, "%.4f", e->val_loss);
        }
        printf("%-16s %s\n", loss,
               !reasons        ? ""
               : reasons[i][0] ? reasons[i]
                               : "(removed by the next prune)");
    }
}

static json_t *entries_to_json(const ls_checkpoint_entry *entries, size_t count, const char *const *reasons)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const ls_checkpoint_entry *e = &entries[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:s, s:s?, s:I, s:I, s:o, s:b, s:s?}", "step",
                                        (json_int_t)e->step, "path", e->path, "problem", e->problem, "bytes",
                                        (json_int_t)e->bytes, "parameters", (json_int_t)e->parameters,
                                        "val_loss", e->has_val_loss ? json_real(e->val_loss) : json_null(),
                                        "pinned", e->pinned, "kept", reasons ? reasons[i] : NULL));
    }
    return json_pack("{s:o}", "checkpoints", list);
}

/* The checkpoints of a folder, or of a mirror in S3. */
static ls_status list_at(ls_arena *arena, const char *path, ls_checkpoint_entry **entries_out,
                         size_t *count_out)
{
    if (!ls_blob_is_remote(path)) {
        return ls_checkpoint_list(arena, path, entries_out, count_out);
    }
    ls_blob_store *store = NULL;
    LS_TRY(ls_blob_open(path, NULL, &store));
    const ls_status status = ls_mirror_list(store, arena, entries_out, NULL, count_out);
    ls_blob_close(store);
    return status;
}

static ls_status run_ls(const ls_invocation *invocation)
{
    const json_settings *settings = invocation->settings;
    const char *path = invocation->words[0];
    if (!ls_blob_is_remote(path) && !ls_path_is_dir(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a folder; give a run directory or its checkpoints folder",
                       path);
    }
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    const char *folder = root_of(invocation->arena, path);
    LS_TRY(list_at(invocation->arena, folder, &entries, &count));
    const char **reasons = reasons_of(invocation->arena, folder, entries, count);
    if (settings->json) {
        json_t *root = entries_to_json(entries, count, reasons);
        ls_print_json(root);
        json_decref(root);
    } else if (count == 0) {
        printf("there are no checkpoints in %s\n", path);
    } else {
        print_entries(entries, count, reasons);
    }
    return LS_OK;
}

const ls_command ls_command_checkpoint_ls = {
    .name = "checkpoint ls",
    LS_WORDS("RUN", 1, 1),
    .summary = "list the checkpoints of a run",
    .details = "RUN is a run directory, a folder of checkpoints, or the mirror of a run\n"
               "(s3://BUCKET/PREFIX). For each checkpoint prints its validation loss and why it\n"
               "is kept (checkpoint.keep_last, keep_best, keep_every, or pinned), or what is\n"
               "damaged.\n"
               "\n"
               "Example:\n"
               "  lockstep checkpoint ls runs/mine",
    LS_SETTINGS(json_settings, json_options),
    .run = run_ls,
};

/* ---- show ---- */

static json_t *checkpoint_to_json(const ls_checkpoint *c)
{
    json_t *files = json_array();
    for (size_t i = 0; i < c->manifest->file_count; i++) {
        const ls_manifest_file *f = &c->manifest->files[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s, s:I}", "name", f->name, "bytes",
                                               (json_int_t)f->bytes, "sha256", f->sha256, "blocks",
                                               (json_int_t)f->block_count));
    }
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o}", "path", c->path, "step",
        (json_int_t)c->meta.step, "parameters", (json_int_t)ls_checkpoint_parameters(c), "data_position",
        (json_int_t)c->meta.data_position, "seed", (json_int_t)c->meta.seed, "leaves",
        (json_int_t)c->meta.leaves, "identity", c->meta.identity, "determinism", c->meta.determinism,
        "val_loss", c->meta.has_val_loss ? json_real(c->meta.val_loss) : json_null(), "files", files);
    json_object_set_new(root, "parent_step",
                        c->meta.has_parent ? json_integer((json_int_t)c->meta.parent_step) : json_null());
    json_object_set_new(root, "pinned", json_boolean(c->pinned));
    json_object_set(root, "extra", (json_t *)(uintptr_t)c->meta.extra);
    return root;
}

static void print_checkpoint(const ls_checkpoint *c)
{
    printf("%s\n  step %" PRIu64 ", %" PRIu64 " parameters, seed %" PRIu64 ", leaves %" PRIu64
           ", next sample %" PRIu64 "\n",
           c->path, c->meta.step, ls_checkpoint_parameters(c), c->meta.seed, c->meta.leaves,
           c->meta.data_position);
    printf("  identity %s\n  determinism %s%s\n", c->meta.identity[0] ? c->meta.identity : "(none: imported)",
           c->meta.determinism, c->pinned ? ", pinned" : "");
    if (c->meta.has_val_loss) {
        printf("  validation loss %.6f\n", c->meta.val_loss);
    }
    for (size_t i = 0; i < c->manifest->file_count; i++) {
        const ls_manifest_file *f = &c->manifest->files[i];
        printf("  %-28s %12" PRIu64 " bytes  sha256 %s\n", f->name, f->bytes, f->sha256);
    }
    for (size_t i = 0; i < c->manifest->tensor_count; i++) {
        const ls_manifest_tensor *t = &c->manifest->tensors[i];
        if (t->kind != LS_KIND_VALUE) {
            continue;
        }
        printf("    %-48s ", t->name);
        for (uint32_t d = 0; d < t->rank; d++) {
            printf("%s%" PRIu64, d ? " x " : "", t->shape[d]);
        }
        putchar('\n');
    }
}

static ls_status run_show(const ls_invocation *invocation)
{
    const json_settings *settings = invocation->settings;
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(open_named(invocation, &checkpoint));
    if (settings->json) {
        json_t *root = checkpoint_to_json(checkpoint);
        ls_print_json(root);
        json_decref(root);
    } else {
        print_checkpoint(checkpoint);
    }
    ls_checkpoint_close(checkpoint);
    return LS_OK;
}

const ls_command ls_command_checkpoint_show = {
    .name = "checkpoint show",
    LS_WORDS("CKPT", 1, 1),
    .summary = "show the contents of a checkpoint",
    .details = "CKPT is a checkpoint (RUN/checkpoints/200), or a run directory for its newest\n"
               "checkpoint.\n"
               "\n"
               "Example:\n"
               "  lockstep checkpoint show runs/mine",
    LS_SETTINGS(json_settings, json_options),
    .run = run_show,
};

/* ---- verify ---- */

typedef struct verify_settings {
    bool repair;
} verify_settings;

static const ls_option verify_options[] = {
    LS_ROW_BOOL(verify_settings, repair,
                "restore damaged files from other checkpoints of the run that have the same bytes"),
};

static void print_mend(const ls_checkpoint_mend *mend)
{
    if (mend->block == LS_CHECKPOINT_HEADER) {
        printf("  %s: %s; good bytes came from %s\n", mend->file, mend->problem, mend->source);
    } else {
        printf("  %s, block %" PRIu64 ": %s; good bytes came from %s\n", mend->file, mend->block,
               mend->problem, mend->source);
    }
}

/* Reads the whole checkpoint in `path`, and repairs it first when that was asked for. */
static ls_status verify_one(const ls_invocation *invocation, const char *path)
{
    const verify_settings *settings = invocation->settings;
    if (settings->repair) {
        ls_checkpoint_mend *mends = NULL;
        size_t count = 0;
        LS_TRY(ls_checkpoint_repair(invocation->arena, path, NULL, &mends, &count));
        for (size_t i = 0; i < count; i++) {
            print_mend(&mends[i]);
        }
    }
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open(path, &checkpoint));
    const ls_status status = ls_checkpoint_verify(checkpoint, 0);
    ls_checkpoint_close(checkpoint);
    return status;
}

/* Reads all of a checkpoint of a mirror in S3. */
static ls_status verify_remote(const ls_invocation *invocation, const char *root, uint64_t step)
{
    ls_blob_store *store = NULL;
    if (((const verify_settings *)invocation->settings)->repair) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "--repair is for checkpoints in folders; a damaged one in %s can only "
                       "be removed ('lockstep blob rm')",
                       root);
    }
    LS_TRY(ls_blob_open(root, NULL, &store));
    const ls_status status = ls_mirror_verify(store, step);
    ls_blob_close(store);
    return status;
}

/* Reads all checkpoints, so that one damaged checkpoint does not hide the state of the others. The
 * first problem is the result. */
static ls_status verify_all(const ls_invocation *invocation, const char *root)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(list_at(invocation->arena, root, &entries, &count));
    const char *first_problem = NULL;
    ls_status first_status = LS_OK;
    for (size_t i = 0; i < count; i++) {
        const ls_status status = ls_blob_is_remote(root) ? verify_remote(invocation, root, entries[i].step)
                                                         : verify_one(invocation, entries[i].path);
        printf("%" PRIu64 ": %s\n", entries[i].step, status == LS_OK ? "good" : ls_error_text());
        if (status != LS_OK && first_status == LS_OK) {
            first_status = status;
            first_problem = ls_arena_strdup(invocation->arena, ls_error_text());
        }
    }
    if (count == 0) {
        return ls_fail(LS_ERR_NOT_FOUND, "there are no checkpoints in %s", root);
    }
    return first_status == LS_OK ? LS_OK : ls_fail(first_status, "%s", first_problem);
}

static ls_status run_verify(const ls_invocation *invocation)
{
    const char *path = invocation->words[0];
    const char *root = root_of(invocation->arena, path);
    const char *manifest = ls_path_join(invocation->arena, path, LS_MANIFEST_NAME);
    if (ls_blob_is_remote(path)) {
        return verify_all(invocation, path);
    }
    if (!ls_path_is_dir(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a folder; give a checkpoint or a run directory", path);
    }
    if (!ls_path_exists(manifest)) {
        return verify_all(invocation, root);
    }
    LS_TRY(verify_one(invocation, path));
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(ls_checkpoint_open(path, &checkpoint));
    printf("%s: good: %" PRIu64 " parameters, every block and file matches the manifest\n", path,
           ls_checkpoint_parameters(checkpoint));
    ls_checkpoint_close(checkpoint);
    return LS_OK;
}

static const ls_option_table no_options = {0};

const ls_command ls_command_checkpoint_verify = {
    .name = "checkpoint verify",
    LS_WORDS("CKPT", 1, 1),
    .summary = "read every byte of a checkpoint and check it",
    .details = "CKPT is a checkpoint, or a run directory for all its checkpoints, or the mirror\n"
               "of a run (s3://BUCKET/PREFIX). Damage is reported with file, block and offset,\n"
               "and the exit code is 3.\n"
               "\n"
               "--repair restores a damaged file from another checkpoint of the run that has a\n"
               "file with the same bytes: usually config.json and run.yaml, and the weights\n"
               "where a snapshot of the same step was kept in float32\n"
               "(checkpoint.weights_dtype). Without such a file nothing is changed, and the run\n"
               "resumes from the checkpoint before.\n"
               "\n"
               "Examples:\n"
               "  lockstep checkpoint verify runs/mine\n"
               "  lockstep checkpoint verify runs/mine/checkpoints/200 --repair",
    LS_SETTINGS(verify_settings, verify_options),
    .run = run_verify,
};

/* ---- prune ---- */

typedef struct prune_settings {
    uint64_t keep_last, keep_best, keep_every;
    double budget, price;
    bool dry_run;
} prune_settings;

static const ls_option prune_options[] = {
    LS_ROW_U64(prune_settings, keep_last, "3", 1, LS_OPTION_U64_MAX, "number of newest checkpoints to keep"),
    LS_ROW_U64(prune_settings, keep_best, "1", 0, LS_OPTION_U64_MAX,
               "number of checkpoints with the lowest validation loss to keep"),
    LS_ROW_U64(prune_settings, keep_every, "0", 0, LS_OPTION_U64_MAX,
               "also keep checkpoints whose step is a multiple of N; 0: keep none for that reason"),
    LS_ROW_F64(
        prune_settings, budget, "0", 0, 1e6,
        "most that what is kept may cost a month, in USD: the oldest are removed beyond it; 0: no limit"),
    LS_ROW_F64(prune_settings, price, "0.023", 1e-4, 1000, "price of storing a GB for a month, for --budget"),
    LS_ROW_BOOL(prune_settings, dry_run, "print which checkpoints would be removed, without removing them"),
};

static ls_status print_kept(ls_arena *arena, const char *root, const ls_checkpoint_prune_options *options)
{
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_checkpoint_list(arena, root, &entries, &count));
    unsigned *reasons = ls_arena_new(arena, unsigned, count);
    ls_checkpoint_reasons(entries, count, options, reasons);
    for (size_t i = 0; i < count; i++) {
        if (reasons[i]) {
            printf("kept %" PRIu64 ": %s\n", entries[i].step, ls_checkpoint_reasons_text(arena, reasons[i]));
        }
    }
    return LS_OK;
}

static ls_status run_prune(const ls_invocation *invocation)
{
    const prune_settings *settings = invocation->settings;
    const char *path = invocation->words[0];
    if (!ls_path_is_dir(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a folder; give a run directory or its checkpoints folder",
                       path);
    }
    ls_checkpoint_prune_options options = {.keep_last = settings->keep_last,
                                           .keep_best = settings->keep_best,
                                           .keep_every = settings->keep_every,
                                           .dry_run = settings->dry_run};
    const ls_run_checkpoint money = {.budget = settings->budget, .price = settings->price};
    LS_TRY(ls_meter_room(&money, &options.bytes_max));
    uint64_t *removed = NULL;
    size_t count = 0;
    const char *root = root_of(invocation->arena, path);
    LS_TRY(print_kept(invocation->arena, root, &options));
    LS_TRY(ls_checkpoint_prune(invocation->arena, root, &options, &removed, &count));
    for (size_t i = 0; i < count; i++) {
        printf("%s %" PRIu64 "\n", settings->dry_run ? "would remove" : "removed", removed[i]);
    }
    if (count == 0) {
        printf("nothing to remove\n");
    }
    return LS_OK;
}

const ls_command ls_command_checkpoint_prune = {
    .name = "checkpoint prune",
    LS_WORDS("RUN", 1, 1),
    .summary = "remove old checkpoints, keep the newest and the best",
    .details = "RUN is a run directory or a folder of checkpoints. The newest good checkpoint,\n"
               "pinned checkpoints ('lockstep checkpoint pin') and damaged ones are never\n"
               "removed.\n"
               "\n"
               "Examples:\n"
               "  lockstep checkpoint prune runs/mine --dry-run\n"
               "  lockstep checkpoint prune runs/mine --dry-run --budget 5\n"
               "  lockstep checkpoint prune runs/mine --keep-last 1 --keep-best 2",
    LS_SETTINGS(prune_settings, prune_options),
    .run = run_prune,
};

/* ---- pin ---- */

/* Takes a checkpoint, not a run directory: its newest checkpoint may change at any moment. */
static ls_status pin(const ls_invocation *invocation, bool pinned)
{
    const char *path = invocation->words[0];
    LS_TRY(ls_checkpoint_pin(path, pinned));
    printf("%s: %s\n", path, pinned ? "pinned; no rule removes it" : "not pinned");
    return LS_OK;
}

static ls_status run_pin(const ls_invocation *invocation)
{
    return pin(invocation, true);
}

static ls_status run_unpin(const ls_invocation *invocation)
{
    return pin(invocation, false);
}

const ls_command ls_command_checkpoint_pin = {
    .name = "checkpoint pin",
    LS_WORDS("CKPT", 1, 1),
    .summary = "protect a checkpoint from being removed",
    .details = "CKPT is the folder of one checkpoint, also of a run in progress. No rule removes\n"
               "a pinned checkpoint.\n"
               "\n"
               "Example:\n"
               "  lockstep checkpoint pin runs/mine/checkpoints/200",
    .options = &no_options,
    .settings_bytes = 1,
    .run = run_pin,
};

const ls_command ls_command_checkpoint_unpin = {
    .name = "checkpoint unpin",
    LS_WORDS("CKPT", 1, 1),
    .summary = "let a pinned checkpoint be removed again",
    .details = "The next save or 'lockstep checkpoint prune' removes the checkpoint, unless a\n"
               "rule keeps it.\n"
               "\n"
               "Example:\n"
               "  lockstep checkpoint unpin runs/mine/checkpoints/200",
    .options = &no_options,
    .settings_bytes = 1,
    .run = run_unpin,
};

/* ---- state-hash ---- */

static ls_status run_state_hash(const ls_invocation *invocation)
{
    ls_checkpoint *checkpoint = NULL;
    LS_TRY(open_named(invocation, &checkpoint));
    char hex[LS_SHA256_HEX_BYTES];
    const ls_status status = ls_checkpoint_state_hash(checkpoint, hex);
    ls_checkpoint_close(checkpoint);
    LS_TRY(status);
    puts(hex);
    return LS_OK;
}

const ls_command ls_command_state_hash = {
    .name = "state-hash",
    LS_WORDS("CKPT", 1, 1),
    .summary = "print a hash of parameters and optimizer state",
    .details = "CKPT is a checkpoint, or a run directory for its newest checkpoint. Prints 64\n"
               "hex digits: SHA-256 over parameters, first and second moments in the order of\n"
               "their Hugging Face names, as little-endian float32, then the step as a 64-bit\n"
               "number. Two runs with the same hash are the same, bit for bit.\n"
               "\n"
               "Example:\n"
               "  lockstep state-hash runs/mine",
    .options = &no_options,
    .settings_bytes = 1,
    .run = run_state_hash,
};
