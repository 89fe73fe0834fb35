// SPDX-License-Identifier: Apache-2.0
/* bundle, bundle verify|open: a run for another site, and what arrives there. */
#include "storage/bundle/bundle.h"

#include "base/file.h"
#include "cli/command.h"
#include "execution/convert/run_bundle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A text of a bundle, which anybody may have written, for the terminal. */
static const char *shown(ls_arena *arena, const char *text)
{
    ls_text safe = {0};
    ls_text_append_printable(&safe, text ? text : "", text ? strlen(text) : 0, "");
    return ls_text_keep(&safe, arena);
}

static uint64_t bytes_of(const ls_bundle *bundle)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < bundle->count; i++) {
        bytes += bundle->files[i].bytes;
    }
    return bytes;
}

static void print_what(ls_arena *arena, const ls_bundle *bundle)
{
    const json_t *step = json_object_get(bundle->about, "step");
    printf("  run %s, ", shown(arena, json_string_value(json_object_get(bundle->about, "run"))));
    if (json_is_integer(step)) {
        printf("checkpoint of step %" JSON_INTEGER_FORMAT ", ", json_integer_value(step));
    }
    printf("%zu files, %.1f MB\n", bundle->count, (double)bytes_of(bundle) / 1e6);
}

static json_t *files_to_json(const ls_bundle *bundle)
{
    json_t *files = json_array();
    for (size_t i = 0; i < bundle->count; i++) {
        const ls_bundle_file *f = &bundle->files[i];
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes",
                                               (json_int_t)f->bytes, "sha256", f->sha256));
    }
    return files;
}

/* ---- bundle ---- */

typedef struct bundle_settings {
    const char *output, *checkpoint, *sign;
    ls_option_strings add;
    bool data, base, json;
} bundle_settings;

static const ls_option bundle_rows[] = {
    LS_ROW_TEXT(bundle_settings, output, "PATH",
                "name of the bundle: an archive if it ends with .tar.zst or .tar, otherwise a folder; it "
                "must not exist yet",
                .letter = 'o'),
    LS_ROW_TEXT_OR(bundle_settings, checkpoint, "newest", "STEP",
                   "checkpoint to pack: newest, best (the lowest validation loss), none, or its step"),
    LS_ROW_BOOL(bundle_settings, data,
                "also pack the files that the run trains on; without it, only their names, sizes and digests "
                "are packed"),
    LS_ROW_BOOL(
        bundle_settings, base,
        "also pack the model that the run started from (model.from); it is needed to continue the run"),
    LS_ROW_TEXTS(bundle_settings, add, "PATH",
                 "also pack this file or folder, such as an exported model; may be given several times"),
    LS_ROW_TEXT(bundle_settings, sign, "KEY", "sign the bundle with this private key (Ed25519, PEM)"),
    LS_ROW_JSON(bundle_settings),
};

static void print_packed(const ls_invocation *invocation, const ls_bundle *bundle, const ls_signing_key *key)
{
    const bundle_settings *s = invocation->settings;
    ls_public_key public = {0};
    ls_text text = {0};
    if (key) {
        ls_signing_key_public(key, &public);
        ls_public_key_append(&public, &text);
    }
    if (s->json) {
        json_t *root = json_pack("{s:s, s:O, s:o, s:s?}", "path", s->output, "about", bundle->about, "files",
                                 files_to_json(bundle), "public_key", key ? ls_text_string(&text) : NULL);
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("%s\n", s->output);
        print_what(invocation->arena, bundle);
        if (key) {
            printf("  signed; the public key for 'minisign -P' is %s\n", ls_text_string(&text));
        }
    }
    ls_text_release(&text);
}

static ls_status pack(const ls_invocation *invocation, const ls_signing_key *key)
{
    const bundle_settings *s = invocation->settings;
    const ls_run_bundle_options options = {.run = invocation->words[0],
                                           .checkpoint = s->checkpoint,
                                           .data = s->data,
                                           .base = s->base,
                                           .added = s->add.items,
                                           .added_count = (size_t)s->add.count};
    ls_bundle bundle = {0};
    LS_TRY(ls_run_bundle_gather(invocation->arena, &options, &bundle));
    const ls_status status = ls_bundle_pack(&bundle, s->output, key);
    if (status == LS_OK) {
        print_packed(invocation, &bundle, key);
    }
    json_decref(bundle.about);
    return status;
}

static ls_status run_bundle(const ls_invocation *invocation)
{
    const bundle_settings *s = invocation->settings;
    ls_signing_key *key = NULL;
    if (!s->output[0]) {
        return ls_fail(LS_ERR_INVALID, "say what to write: -o FILE.tar.zst, or -o DIR for a folder");
    }
    if (ls_path_exists(s->output)) {
        return ls_fail(LS_ERR_INVALID, "%s exists; remove it, or give another name", s->output);
    }
    if (s->sign[0]) {
        LS_TRY(ls_signing_key_open(s->sign, &key));
    }
    const ls_status status = pack(invocation, key);
    ls_signing_key_close(key);
    return status;
}

const ls_command ls_command_bundle = {
    .name = "bundle",
    LS_WORDS("RUN", 1, 1),
    .summary = "pack a run for another site",
    .details = "RUN is a run directory. The bundle holds its run file, metrics, events, tokenizer\n"
               "and one checkpoint, and names the files it trained on with their digests. Every\n"
               "file has its SHA-256 in BUNDLE.json, which --sign signs in the format of\n"
               "minisign. 'bundle open' unpacks it, and from there the run can be sampled from\n"
               "and resumed.\n"
               "\n"
               "Examples:\n"
               "  lockstep bundle runs/mine -o mine.tar.zst\n"
               "  openssl genpkey -algorithm ed25519 -out key.pem\n"
               "  openssl pkey -in key.pem -pubout -out pub.pem\n"
               "  lockstep bundle runs/mine -o mine.tar.zst --data --sign key.pem",
    LS_SETTINGS(bundle_settings, bundle_rows),
    .run = run_bundle,
};

/* ---- bundle verify, bundle open ---- */

typedef struct open_settings {
    const char *output, *key;
    bool json;
} open_settings;

#define ROW_KEY                                                                                              \
    LS_ROW_TEXT(open_settings, key, "PUB",                                                                   \
                "accept the bundle only if this public key (Ed25519: PEM, or a file of minisign) signed it")

static const ls_option verify_rows[] = {ROW_KEY, LS_ROW_JSON(open_settings)};
static const ls_option open_rows[] = {LS_ROW_OUTPUT_DIR(open_settings), ROW_KEY, LS_ROW_JSON(open_settings)};

static void print_sender(const ls_bundle_sender *sender)
{
    char name[LS_KEY_NAME_HEX_BYTES];
    ls_key_name_hex(sender->signature.key_name, name);
    if (sender->is_checked) {
        printf("  signed by key %s: good\n", name);
    } else if (sender->is_signed) {
        printf("  signed by key %s, which was not checked: --key PUB checks who sent it\n", name);
    } else {
        printf("  not signed: its digests say that it is undamaged, not who made it\n");
    }
}

/* Files of the data that are not where resume.yaml looks for them. */
static void print_missing(ls_arena *arena, const ls_bundle *bundle, const char *folder)
{
    const json_t *data = json_object_get(bundle->about, "data");
    const char *needs = json_string_value(json_object_get(bundle->about, "needs"));
    if (needs) {
        printf("  to continue, the model that the run began with must be at %s\n", shown(arena, needs));
    }
    if (json_is_true(json_object_get(bundle->about, "has_data")) || json_array_size(data) == 0) {
        return;
    }
    printf("  to continue, put the data into %s:\n", folder);
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *item = json_array_get(data, i);
        const char *sha256 = json_string_value(json_object_get(item, "sha256"));
        printf("    %s  %s  (there: %s)\n", sha256 ? shown(arena, sha256) : "(digest not known)",
               shown(arena, json_string_value(json_object_get(item, "name"))),
               shown(arena, json_string_value(json_object_get(item, "path"))));
    }
}

static void print_opened(const ls_invocation *invocation, const ls_bundle *bundle,
                         const ls_bundle_sender *sender, const char *folder)
{
    ls_arena *arena = invocation->arena;
    const bool has_model = json_is_integer(json_object_get(bundle->about, "step"));
    printf("%s: every file is as it was packed\n", invocation->words[0]);
    print_what(arena, bundle);
    print_sender(sender);
    if (folder) {
        print_missing(arena, bundle, folder);
    }
    if (folder && has_model) {
        printf("  lockstep sample %s/run --prompt TEXT\n", folder);
        printf("  cd %s && lockstep train resume.yaml --run-dir run\n", folder);
    }
}

static ls_status open_bundle(const ls_invocation *invocation, const char *folder)
{
    const open_settings *s = invocation->settings;
    ls_public_key key;
    ls_bundle bundle = {0};
    ls_bundle_sender sender = {0};
    if (s->key[0]) {
        LS_TRY(ls_public_key_load(s->key, &key));
    }
    LS_TRY(ls_bundle_open(invocation->arena, invocation->words[0], folder, s->key[0] ? &key : NULL, &bundle,
                          &sender));
    if (s->json) {
        char name[LS_KEY_NAME_HEX_BYTES];
        ls_key_name_hex(sender.signature.key_name, name);
        json_t *root = json_pack("{s:s, s:s?, s:O, s:o, s:s?, s:b}", "path", invocation->words[0], "folder",
                                 folder, "about", bundle.about, "files", files_to_json(&bundle), "signed_by",
                                 sender.is_signed ? name : NULL, "signature_checked", sender.is_checked);
        ls_print_json(root);
        json_decref(root);
    } else {
        print_opened(invocation, &bundle, &sender, folder);
    }
    json_decref(bundle.about);
    return LS_OK;
}

static ls_status run_bundle_verify(const ls_invocation *invocation)
{
    return open_bundle(invocation, NULL);
}

const ls_command ls_command_bundle_verify = {
    .name = "bundle verify",
    LS_WORDS("BUNDLE", 1, 1),
    .summary = "check a bundle that arrived",
    .details = "BUNDLE is an archive or folder that 'lockstep bundle' made. Checks the size and\n"
               "SHA-256 of every file; with --key, also the signature. Nothing is unpacked.\n"
               "\n"
               "Example:\n"
               "  lockstep bundle verify mine.tar.zst --key pub.pem",
    LS_SETTINGS(open_settings, verify_rows),
    .run = run_bundle_verify,
};

static ls_status run_bundle_open(const ls_invocation *invocation)
{
    const open_settings *s = invocation->settings;
    return s->output[0] ? open_bundle(invocation, s->output)
                        : ls_fail(LS_ERR_INVALID, "say where to unpack it: -o DIR, which must not exist");
}

const ls_command ls_command_bundle_open = {
    .name = "bundle open",
    LS_WORDS("BUNDLE", 1, 1),
    .summary = "check and unpack a bundle",
    .details = "Unpacks BUNDLE into a new folder, which appears when everything in it has been\n"
               "checked as by 'bundle verify'. Links, files that BUNDLE.json does not list and\n"
               "files longer than listed there are refused.\n"
               "\n"
               "Example:\n"
               "  lockstep bundle open mine.tar.zst -o mine --key pub.pem\n"
               "  cd mine && lockstep train resume.yaml --run-dir run",
    LS_SETTINGS(open_settings, open_rows),
    .run = run_bundle_open,
};
