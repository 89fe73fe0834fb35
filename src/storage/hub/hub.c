// SPDX-License-Identifier: Apache-2.0
#include "storage/hub/hub.h"

#include "base/file.h"
#include "base/json.h"
#include "storage/hub/hub_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* In FOLDER.part: of which model and commit the files are. */
static const char STATE_NAME[] = "pull.json";

typedef struct list {
    ls_arena *arena;
    const char *commit;
    ls_hub_file *files;
    size_t count;
} list;

/* ---- the token ---- */

const char *ls_hub_token(ls_arena *arena)
{
    const char *token = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH"), *home = getenv("HF_HOME");
    if (token && *token) {
        return token;
    }
    path = path && *path   ? path
           : home && *home ? ls_path_join(arena, home, "token")
                           : ls_path_expand_home(arena, "~/.cache/huggingface/token");
    char *text = NULL;
    size_t bytes = 0;
    if (!ls_path_exists(path) || ls_file_read(arena, path, 4096, &text, &bytes) != LS_OK) {
        ls_error_clear();
        return NULL;
    }
    text[strcspn(text, "\r\n ")] = '\0';
    return *text ? text : NULL;
}

/* ---- which files ---- */

static const char *const wanted_names[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "adapter_config.json",
    "adapter_model.safetensors",
};
static const char SHARDS[] = "model-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].safetensors";

static bool is_listed(const json_t *siblings, const char *name)
{
    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(siblings, i), "rfilename"));
        if (other && strcmp(other, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Names are compared with those above, so none leads out of the folder. single: the model has all
 * weights in one file. */
static bool is_wanted(const char *name, bool single)
{
    for (size_t i = 0; i < sizeof wanted_names / sizeof wanted_names[0]; i++) {
        if (strcmp(name, wanted_names[i]) == 0) {
            return true;
        }
    }
    if (single) {
        return strcmp(name, "model.safetensors") == 0;
    }
    return strcmp(name, "model.safetensors.index.json") == 0 || fnmatch(SHARDS, name, 0) == 0;
}

static ls_status add_file(list *l, const json_t *entry, const char *name)
{
    ls_hub_file *file = &l->files[l->count++];
    *file = (ls_hub_file){.name = ls_arena_strdup(l->arena, name)};
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *sha256 = NULL;
    LS_TRY(ls_json_get_u64(entry, name, "size", 0, INT64_MAX, UINT64_MAX, &file->size));
    LS_TRY(ls_json_get_u64(lfs, name, "size", 0, INT64_MAX, file->size, &file->size));
    LS_TRY(ls_json_get_string(lfs, name, "sha256", NULL, &sha256));
    if (sha256 && !ls_hash_is_hex(sha256, 64)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: the hub lists \"%.80s\" as its SHA-256, which must be 64 hexadecimal digits",
                       name, sha256);
    }
    file->sha256 = sha256 ? ls_arena_strdup(l->arena, sha256) : NULL;
    return LS_OK;
}

static ls_status check_complete(const ls_hub_options *o, const list *l, const json_t *siblings)
{
    bool config = false, weights = false;
    for (size_t i = 0; i < l->count; i++) {
        const char *name = l->files[i].name;
        config = config || strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0;
        weights = weights || (ls_path_has_suffix(name, ".safetensors"));
    }
    if (!config) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s has no config.json, so it is not a model in the form that Lockstep reads",
                       o->repository);
    }
    if (!weights) {
        const bool pickled =
            is_listed(siblings, "pytorch_model.bin") || is_listed(siblings, "pytorch_model.bin.index.json");
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has no safetensors%s; look for a model that has them",
                       o->repository,
                       pickled ? ", only pytorch_model.bin, which is a program and is never run here" : "");
    }
    return LS_OK;
}

static ls_status read_list(const ls_hub_options *o, const json_t *root, list *l)
{
    const json_t *siblings = json_object_get(root, "siblings");
    const char *commit = "";
    LS_TRY(ls_json_get_string(root, o->repository, "sha", "", &commit));
    if (!json_is_array(siblings) || strspn(commit, "0123456789abcdef") != strlen(commit)) {
        return ls_fail(LS_ERR_DATA, "%s: the answer of %s is not a list of files", o->repository,
                       o->endpoint);
    }
    l->commit = ls_arena_strdup(l->arena, commit);
    l->files = ls_arena_new(l->arena, ls_hub_file, json_array_size(siblings) + 1);
    const bool single = is_listed(siblings, "model.safetensors");
    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const json_t *entry = json_array_get(siblings, i);
        const char *name = json_string_value(json_object_get(entry, "rfilename"));
        if (name && is_wanted(name, single)) {
            LS_TRY(add_file(l, entry, name));
        }
    }
    return check_complete(o, l, siblings);
}

static ls_status get_list(const ls_hub_options *o, list *l)
{
    ls_text text = {0};
    json_t *root = NULL;
    const char *url = ls_arena_printf(l->arena, "%s/api/models/%s/revision/%s?blobs=true", o->endpoint,
                                      o->repository, o->revision);
    ls_status status = ls_hub_get_text(o, url, o->repository, &text);
    if (status == LS_OK) {
        status = ls_json_parse(ls_text_string(&text), text.bytes, "the list of files", &root);
    }
    if (status == LS_OK) {
        status = read_list(o, root, l);
    }
    json_decref(root);
    ls_text_release(&text);
    return status;
}

/* ---- the folder ---- */

/* ORG/NAME, or NAME alone for a few old models; and what may be part of an address. */
static ls_status check_names(const ls_hub_options *o)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    const char *slash = strchr(o->repository, '/');
    if (!*o->repository || o->repository[strspn(o->repository, allowed)] || strstr(o->repository, "..") ||
        slash == o->repository || (slash && (!slash[1] || strchr(slash + 1, '/')))) {
        return ls_fail(LS_ERR_INVALID,
                       "\"%s\" is not the name of a model on a hub: ORG/NAME, such as "
                       "HuggingFaceTB/SmolLM2-135M",
                       o->repository);
    }
    if (!*o->revision || o->revision[strspn(o->revision, allowed)] || strstr(o->revision, "..")) {
        return ls_fail(LS_ERR_INVALID, "\"%s\" is not a revision: a branch, a tag or a commit", o->revision);
    }
    return LS_OK;
}

static ls_status check_folder(ls_arena *arena, const char *folder)
{
    char **names = NULL;
    size_t count = 0;
    if (!ls_path_exists(folder)) {
        return LS_OK;
    }
    if (!ls_path_is_dir(folder)) {
        return ls_fail(LS_ERR_INVALID, "%s exists and is not a folder", folder);
    }
    LS_TRY(ls_dir_list(arena, folder, &names, &count));
    return count == 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "%s is not empty (it holds %s): choose another folder with -o DIR",
                         folder, names[0]);
}

/* The state in FOLDER.part; NULL: none, or none that a pull wrote. */
static json_t *load_state(const char *path)
{
    json_t *state = NULL;
    if (ls_json_load(path, 1 << 16, &state) != LS_OK) {
        ls_error_clear();
        return NULL;
    }
    if (json_is_string(json_object_get(state, "repository")) &&
        json_is_string(json_object_get(state, "commit"))) {
        return state;
    }
    json_decref(state);
    return NULL;
}

/* Everything in FOLDER.part but its state: removed, or refused if it is not of a pull. */
static ls_status empty_work(ls_arena *arena, const char *work, bool is_of_pull)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, work, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], STATE_NAME) == 0) {
            continue;
        }
        if (!is_of_pull) {
            return ls_fail(
                LS_ERR_INVALID,
                "%s holds %s, which no pull has left there, and files are gathered in that folder: "
                "rename or remove it, or choose another folder with -o DIR",
                work, names[i]);
        }
        LS_TRY(ls_dir_remove(ls_path_join(arena, work, names[i])));
    }
    return LS_OK;
}

/* Opens and locks the state; the file is never replaced, so that its lock is that of the folder. */
static ls_status lock_work(const char *work, const char *path, int *lock_out)
{
    struct stat locked, named;
    *lock_out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*lock_out < 0) {
        return ls_fail_errno(errno, "can't open %s", path);
    }
    if (flock(*lock_out, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? ls_fail(LS_ERR_FAILED, "another process is fetching to %s", work)
                                    : ls_fail_errno(errno, "can't lock %s", path);
    }
    if (fstat(*lock_out, &locked) != 0 || stat(path, &named) != 0 || locked.st_ino != named.st_ino) {
        return ls_fail(LS_ERR_FAILED, "another process has just fetched to %s", work);
    }
    return LS_OK;
}

/* Opens FOLDER.part for this commit and locks it. What another commit left there is removed. */
static ls_status open_work(const ls_hub_options *o, const list *l, const char *work, int *lock_out)
{
    const char *path = ls_path_join(l->arena, work, STATE_NAME);
    LS_TRY(ls_dir_create(work));
    if (!ls_path_exists(path)) {
        LS_TRY(empty_work(l->arena, work, false));
    }
    LS_TRY(lock_work(work, path, lock_out));
    json_t *state = load_state(path);
    json_t *now = json_pack("{s:s, s:s}", "repository", o->repository, "commit", l->commit);
    ls_status status = LS_OK;
    if (!state || !json_equal(state, now)) {
        status = empty_work(l->arena, work, state != NULL);
        if (status == LS_OK && (ftruncate(*lock_out, 0) != 0 || json_dumpfd(now, *lock_out, 0) != 0)) {
            status = ls_fail_errno(errno, "can't write %s", path);
        }
    }
    json_decref(state);
    json_decref(now);
    return status;
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

/* Bytes of a file that are in the folder already, whole or in part. */
static uint64_t there(ls_arena *arena, const char *work, const ls_hub_file *file)
{
    const char *path = ls_path_join(arena, work, file->name);
    const uint64_t whole = size_of(path);
    return whole ? whole : size_of(ls_arena_printf(arena, "%s.part", path));
}

static ls_status check_space(const list *l, const char *work)
{
    struct statvfs disk;
    uint64_t needed = 0;
    for (size_t i = 0; i < l->count; i++) {
        const uint64_t have = there(l->arena, work, &l->files[i]), size = l->files[i].size;
        const uint64_t more = size != UINT64_MAX && size > have ? size - have : 0;
        needed = more < UINT64_MAX - needed ? needed + more : UINT64_MAX;
    }
    if (statvfs(work, &disk) == 0 && needed > (uint64_t)disk.f_bavail * disk.f_frsize) {
        return ls_fail(LS_ERR_DISK, "%.1f GB are to be fetched, and the disk of %s has %.1f GB free",
                       (double)needed / 1e9, work, (double)disk.f_bavail * (double)disk.f_frsize / 1e9);
    }
    return LS_OK;
}

static ls_status fetch_all(const ls_hub_options *o, const list *l, const char *work, ls_hub_pulled *pulled)
{
    for (size_t i = 0; i < l->count; i++) {
        const ls_hub_file *file = &l->files[i];
        const char *path = ls_path_join(l->arena, work, file->name);
        const char *url = ls_arena_printf(l->arena, "%s/%s/resolve/%s/%s", o->endpoint, o->repository,
                                          *l->commit ? l->commit : o->revision, file->name);
        uint64_t reused = 0;
        if (ls_path_exists(path) && size_of(path) == file->size) {
            reused = file->size; /* it got its name after its checks */
        } else {
            LS_TRY(ls_hub_get_file(o, url, file, path, &reused));
        }
        pulled->files++;
        pulled->bytes += size_of(path);
        pulled->reused_bytes += reused;
    }
    return LS_OK;
}

static ls_status put_in_place(ls_arena *arena, const char *work, const char *folder)
{
    if (unlink(ls_path_join(arena, work, STATE_NAME)) != 0) {
        return ls_fail_errno(errno, "can't remove %s/%s", work, STATE_NAME);
    }
    LS_TRY(ls_dir_sync(work));
    if (rename(work, folder) != 0) {
        return ls_fail_errno(errno, "can't rename %s to %s", work, folder);
    }
    return ls_dir_sync(ls_path_dirname(arena, folder));
}

ls_status ls_hub_pull(const ls_hub_options *options, ls_arena *arena, ls_hub_pulled *pulled_out)
{
    ls_hub_options o = *options;
    list l = {.arena = arena};
    ls_hub_pulled pulled = {0};
    int lock = -1;
    o.endpoint = ls_path_trim(arena, o.endpoint);
    o.folder = ls_path_trim(arena, o.folder);
    const char *work = ls_arena_printf(arena, "%s.part", o.folder);
    LS_TRY(check_names(&o));
    LS_TRY(check_folder(arena, o.folder));
    LS_TRY(get_list(&o, &l));
    ls_status status = open_work(&o, &l, work, &lock);
    if (status == LS_OK) {
        status = check_space(&l, work);
    }
    if (status == LS_OK) {
        status = fetch_all(&o, &l, work, &pulled);
    }
    if (status == LS_OK) {
        status = put_in_place(arena, work, o.folder);
    }
    if (lock >= 0) {
        (void)close(lock);
    }
    if (status == LS_OK) {
        pulled.commit = l.commit;
        *pulled_out = pulled;
    }
    return status;
}
