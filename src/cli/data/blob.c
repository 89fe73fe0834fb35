// SPDX-License-Identifier: Apache-2.0
/* blob ls|get|put|cp|rm|bench: files in S3 and folders. */
#include "storage/blob/blob.h"

#include "base/file.h"
#include "cli/command.h"
#include "cli/table.h"
#include "storage/blob/blob_bench.h"
#include "storage/blob/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct blob_settings {
    const char *endpoint, *region;
    uint64_t threads, bytes, objects;
    double patience_s;
    bool recursive, if_absent, json;
} blob_settings;

#define ROWS_PLACE                                                                                           \
    LS_ROW_TEXT(blob_settings, endpoint, "URL",                                                              \
                "address of the S3 server; default: AWS_ENDPOINT_URL, or else Amazon S3"),                   \
        LS_ROW_TEXT(blob_settings, region, NULL,                                                             \
                    "region of the bucket; default: AWS_REGION, the region of the profile, or us-east-1"),   \
        LS_ROW_DURATION(blob_settings, patience, patience_s, "2m", 0.1, 86400,                               \
                        "how long to keep repeating a request that fails for a temporary reason",            \
                        .unit_needed = true),                                                                \
        LS_ROW_U64(blob_settings, threads, "4", 1, LS_BLOB_THREADS_MAX, "number of requests at once")
#define ROW_RECURSIVE                                                                                        \
    LS_ROW_BOOL(blob_settings, recursive, "include everything below the address, like a folder",             \
                .letter = 'r')

static ls_blob_options options_of(const blob_settings *s)
{
    return (ls_blob_options){.endpoint = s->endpoint[0] ? s->endpoint : NULL,
                             .region = s->region[0] ? s->region : NULL,
                             .patience_s = s->patience_s,
                             .threads = (unsigned)s->threads};
}

static ls_status open_place(const ls_invocation *invocation, const char *address, ls_blob_place *place_out)
{
    const ls_blob_options options = options_of(invocation->settings);
    return ls_blob_place_open(invocation->arena, address, &options, place_out);
}

/* ---- ls ---- */

static const ls_option ls_rows[] = {ROW_RECURSIVE, LS_ROW_JSON(blob_settings), ROWS_PLACE};

static void print_list_json(const char *address, const ls_blob_entry *entries, size_t count)
{
    json_t *list = json_array();
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_blob_entry *e = &entries[i];
        bytes += e->bytes;
        json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:f, s:s}", "key", e->key, "folder",
                                              e->is_folder, "bytes", (json_int_t)e->bytes, "modified_s",
                                              e->modified_s, "etag", e->etag));
    }
    json_t *root =
        json_pack("{s:s, s:I, s:o}", "address", address, "bytes", (json_int_t)bytes, "blobs", list);
    ls_print_json(root);
    json_decref(root);
}

static void print_list(ls_arena *arena, const ls_blob_entry *entries, size_t count)
{
    static const char *const titles[] = {"BYTES", "MODIFIED (UTC)", "KEY"};
    static const bool right[] = {true, false, false};
    ls_table table = {.titles = titles, .right = right, .columns = 3, .arena = arena};
    for (size_t i = 0; i < count; i++) {
        const ls_blob_entry *e = &entries[i];
        char when[32] = "";
        const time_t seconds = (time_t)e->modified_s;
        struct tm parts;
        if (!e->is_folder && gmtime_r(&seconds, &parts)) {
            strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
        }
        ls_table_add(&table, e->is_folder ? "" : ls_arena_printf(arena, "%" PRIu64, e->bytes));
        ls_table_add(&table, ls_arena_strdup(arena, when));
        ls_table_add(&table, e->key);
    }
    ls_table_print(&table);
}

static ls_status run_blob_ls(const ls_invocation *invocation)
{
    const blob_settings *settings = invocation->settings;
    ls_blob_place place;
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(open_place(invocation, invocation->words[0], &place));
    const ls_status status =
        ls_blob_list(place.store, invocation->arena, place.key, settings->recursive, &entries, &count);
    if (status == LS_OK && settings->json) {
        print_list_json(invocation->words[0], entries, count);
    } else if (status == LS_OK && count == 0) {
        printf("there is nothing at %s\n", invocation->words[0]);
    } else if (status == LS_OK) {
        print_list(invocation->arena, entries, count);
    }
    ls_blob_close(place.store);
    return status;
}

const ls_command ls_command_blob_ls = {
    .name = "blob ls",
    LS_WORDS("ADDRESS", 1, 1),
    .summary = "list what is in a bucket or folder",
    .details = "ADDRESS is s3://BUCKET/PREFIX or a folder. In S3, every key that begins with\n"
               "PREFIX is listed; without --recursive, keys that have a further slash are\n"
               "shown as folders.\n"
               "\n"
               "Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a web\n"
               "identity (AWS_WEB_IDENTITY_TOKEN_FILE), ~/.aws/credentials, or the metadata\n"
               "service of a cloud machine.\n"
               "\n"
               "Examples:\n"
               "  lockstep blob ls s3://models/mine/\n"
               "  lockstep blob ls s3://models --recursive --json",
    LS_SETTINGS(blob_settings, ls_rows),
    .run = run_blob_ls,
};

/* ---- get, put, cp ---- */

static const ls_option copy_rows[] = {ROW_RECURSIVE, ROWS_PLACE};

static ls_status copy(const ls_invocation *invocation, const char *from_address, const char *to_address)
{
    const blob_settings *settings = invocation->settings;
    ls_blob_place from, to;
    ls_blob_moved moved = {0};
    LS_TRY(open_place(invocation, from_address, &from));
    ls_status status = open_place(invocation, to_address, &to);
    if (status == LS_OK) {
        status = ls_blob_transfer(&from, &to, settings->recursive, (unsigned)settings->threads, &moved);
        ls_blob_close(to.store);
    }
    ls_blob_close(from.store);
    LS_TRY(status);
    printf("%s: %" PRIu64 " file%s, %.1f MB\n", to_address, moved.blobs, moved.blobs == 1 ? "" : "s",
           (double)moved.bytes / 1e6);
    return LS_OK;
}

static ls_status run_blob_cp(const ls_invocation *invocation)
{
    return copy(invocation, invocation->words[0], invocation->words[1]);
}

const ls_command ls_command_blob_cp = {
    .name = "blob cp",
    LS_WORDS("FROM TO", 2, 2),
    .summary = "copy files between folders and buckets",
    .details = "FROM and TO are s3://BUCKET/KEY or paths. If TO ends with a slash, or is a folder\n"
               "or bucket, the file keeps its name there. Within one bucket, the server copies\n"
               "the file itself.\n"
               "\n"
               "Examples:\n"
               "  lockstep blob cp s3://models/mine/200/model.safetensors .\n"
               "  lockstep blob cp --recursive corpus s3://data/corpus",
    LS_SETTINGS(blob_settings, copy_rows),
    .run = run_blob_cp,
};

static ls_status get_to_stdout(const ls_invocation *invocation)
{
    enum { PIECE_BYTES = 8 << 20 };
    ls_blob_place place;
    ls_blob_entry entry;
    LS_TRY(open_place(invocation, invocation->words[0], &place));
    void *data = ls_arena_alloc(invocation->arena, PIECE_BYTES);
    ls_status status = ls_blob_stat(place.store, place.key, &entry);
    for (uint64_t at = 0; status == LS_OK && at < entry.bytes; at += PIECE_BYTES) {
        const size_t bytes = entry.bytes - at < PIECE_BYTES ? (size_t)(entry.bytes - at) : PIECE_BYTES;
        status = ls_blob_read(place.store, place.key, entry.etag, at, data, bytes);
        status = status == LS_OK ? ls_file_write_all(STDOUT_FILENO, "stdout", data, bytes) : status;
    }
    ls_blob_close(place.store);
    return status;
}

static ls_status run_blob_get(const ls_invocation *invocation)
{
    const char *to = invocation->word_count > 1 ? invocation->words[1] : "./";
    if (strcmp(to, "-") == 0) {
        return get_to_stdout(invocation);
    }
    if (ls_blob_is_remote(to)) {
        return ls_fail(LS_ERR_INVALID, "%s is not a path; 'lockstep blob cp' copies to S3", to);
    }
    return copy(invocation, invocation->words[0], to);
}

const ls_command ls_command_blob_get = {
    .name = "blob get",
    LS_WORDS("ADDRESS [PATH]", 1, 2),
    .summary = "fetch a file from a bucket",
    .details = "Fetches s3://BUCKET/KEY to PATH. Without PATH the file goes to the current folder;\n"
               "with '-' to the standard output. PATH changes only when the whole file has\n"
               "arrived.\n"
               "\n"
               "Examples:\n"
               "  lockstep blob get s3://models/mine/200/config.json\n"
               "  lockstep blob get s3://models/mine/200/ local/200 --recursive",
    LS_SETTINGS(blob_settings, copy_rows),
    .run = run_blob_get,
};

static const ls_option put_rows[] = {
    ROW_RECURSIVE,
    LS_ROW_BOOL(blob_settings, if_absent,
                "fail if the key exists already, instead of replacing it; for files of at most 1 GiB"),
    ROWS_PLACE,
};

static ls_status put_new(const ls_invocation *invocation)
{
    const char *address = invocation->words[1];
    char *data = NULL;
    size_t bytes = 0;
    bool stored = false;
    ls_blob_place place;
    LS_TRY(ls_file_read(invocation->arena, invocation->words[0], LS_BLOB_WHOLE_BYTES_MAX, &data, &bytes));
    LS_TRY(open_place(invocation, address, &place));
    const ls_status status = ls_blob_put_new(place.store, place.key, data, bytes, &stored);
    ls_blob_close(place.store);
    LS_TRY(status);
    if (!stored) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is there already, and nothing was changed; leave out --if-absent to "
                       "replace it",
                       address);
    }
    printf("%s: 1 file, %.1f MB\n", address, (double)bytes / 1e6);
    return LS_OK;
}

static ls_status run_blob_put(const ls_invocation *invocation)
{
    const blob_settings *settings = invocation->settings;
    if (settings->if_absent && settings->recursive) {
        return ls_fail(LS_ERR_INVALID, "--if-absent is for one file; leave out --recursive");
    }
    return settings->if_absent ? put_new(invocation)
                               : copy(invocation, invocation->words[0], invocation->words[1]);
}

const ls_command ls_command_blob_put = {
    .name = "blob put",
    LS_WORDS("PATH ADDRESS", 2, 2),
    .summary = "store a file in a bucket",
    .details = "Stores PATH as s3://BUCKET/KEY. If KEY ends with a slash, the file keeps its name\n"
               "below KEY. Large files are sent in parts; if the command is interrupted and\n"
               "repeated, only the missing parts are sent.\n"
               "\n"
               "Examples:\n"
               "  lockstep blob put corpus.jsonl s3://data/corpus.jsonl\n"
               "  lockstep blob put runs/mine s3://backup/mine --recursive",
    LS_SETTINGS(blob_settings, put_rows),
    .run = run_blob_put,
};

/* ---- rm ---- */

static ls_status run_blob_rm(const ls_invocation *invocation)
{
    const blob_settings *settings = invocation->settings;
    ls_blob_place place;
    ls_blob_moved moved = {0};
    LS_TRY(open_place(invocation, invocation->words[0], &place));
    const ls_status status =
        ls_blob_remove_all(&place, settings->recursive, (unsigned)settings->threads, &moved);
    ls_blob_close(place.store);
    LS_TRY(status);
    printf("removed %" PRIu64 " file%s, %.1f MB\n", moved.blobs, moved.blobs == 1 ? "" : "s",
           (double)moved.bytes / 1e6);
    return LS_OK;
}

const ls_command ls_command_blob_rm = {
    .name = "blob rm",
    LS_WORDS("ADDRESS", 1, 1),
    .summary = "remove files from a bucket or folder",
    .details = "Removes s3://BUCKET/KEY or a file; with --recursive, everything below it.\n"
               "\n"
               "Example:\n"
               "  lockstep blob rm s3://models/old/ --recursive",
    LS_SETTINGS(blob_settings, copy_rows),
    .run = run_blob_rm,
};

/* ---- bench ---- */

static const ls_option bench_rows[] = {
    LS_ROW_BYTES(blob_settings, bytes, bytes, "256MiB", 1, 1e13, "size of the large file"),
    LS_ROW_U64(blob_settings, objects, "1000", 1, 1e6, "number of small blobs, of 1 KiB each"),
    LS_ROW_JSON(blob_settings),
    ROWS_PLACE,
};

static void print_bench(const blob_settings *s, const char *address, const ls_blob_bench_result *r)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const json_int_t peak = 1024 * (json_int_t)usage.ru_maxrss;
    if (s->json) {
        json_t *root =
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "address", address,
                      "threads", (json_int_t)s->threads, "bytes", (json_int_t)s->bytes, "objects",
                      (json_int_t)s->objects, "put_bytes_ps", r->put_bytes_ps, "get_bytes_ps",
                      r->get_bytes_ps, "small_put_ps", r->put_ps, "small_get_ps", r->get_ps,
                      "small_remove_ps", r->remove_ps, "sign_ps", r->sign_ps, "peak_rss_bytes", peak);
        ls_print_json(root);
        json_decref(root);
        return;
    }
    printf("%s, %" PRIu64 " requests at once\n", address, s->threads);
    printf("  a file of %.1f MB    put %.1f MB/s, get %.1f MB/s\n", (double)s->bytes / 1e6,
           r->put_bytes_ps / 1e6, r->get_bytes_ps / 1e6);
    printf("  %" PRIu64 " blobs of 1 KiB   put %.0f/s, get %.0f/s, remove %.0f/s\n", s->objects, r->put_ps,
           r->get_ps, r->remove_ps);
    printf("  signatures   %.0f/s on one core\n  peak memory  %.1f MB\n", r->sign_ps, (double)peak / 1e6);
}

static ls_status run_blob_bench(const ls_invocation *invocation)
{
    const blob_settings *s = invocation->settings;
    const ls_blob_options options = options_of(s);
    const ls_blob_bench_options asked = {
        .bytes = s->bytes, .objects = s->objects, .threads = (unsigned)s->threads};
    ls_blob_store *store = NULL;
    ls_blob_bench_result result;
    LS_TRY(ls_blob_open(invocation->words[0], &options, &store));
    const ls_status status = ls_blob_bench(store, &asked, &result);
    ls_blob_close(store);
    LS_TRY(status);
    print_bench(s, invocation->words[0], &result);
    return LS_OK;
}

const ls_command ls_command_blob_bench = {
    .name = "blob bench",
    LS_WORDS("ADDRESS", 1, 1),
    .summary = "measure a bucket or folder",
    .details = "Stores and fetches a large file and many small blobs below ADDRESS, checks what\n"
               "comes back, and removes them. The large file is read from and written to a file in\n"
               "$TMPDIR.\n"
               "\n"
               "Example:\n"
               "  lockstep blob bench s3://models --bytes 1GiB --threads 8",
    LS_SETTINGS(blob_settings, bench_rows),
    .run = run_blob_bench,
};
