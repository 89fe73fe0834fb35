// SPDX-License-Identifier: Apache-2.0
/*
 * Entries: what a registry keeps of one model, adapter, data set, tokenizer or evaluation. An entry
 * is a JSON document that never changes; its digest is the SHA-256 of the document.
 *
 *   format, version     "lockstep-registry-entry", 1
 *   kind                "model", "adapter", "data", "tokenizer" or "evaluation"
 *   name                under which it was added
 *   path                folder or file it was made from, absolute
 *   stored              whether the registry holds the bytes; if not, `path` does
 *   files[]             name (relative to path, with slashes), bytes, sha256; sorted by name
 *   parents[]           entry (digest), as ("base", "data", "parent", ...)
 *   who, when, code     "user@host"; seconds since 1970; version of the program
 *   facts               object: run{name, file, identity, step, data_hash}, preparation{},
 *                       sources[], metrics{}, note; what is not known is left out
 *
 * Decoding trusts nothing: digests are hexadecimal, names of files stay in their folder and appear
 * once, sizes are in range. Keys not listed are ignored within version 1. Pure.
 */
#ifndef LS_STORAGE_REGISTRY_ENTRY_H
#define LS_STORAGE_REGISTRY_ENTRY_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"

enum {
    LS_ENTRY_BYTES_MAX = 64 << 20,
    LS_ENTRY_NAME_BYTES_MAX = 128,
    LS_ENTRY_PARENTS_MAX = 1024,
};

typedef enum ls_registry_entry_kind {
    LS_ENTRY_MODEL,
    LS_ENTRY_ADAPTER,
    LS_ENTRY_DATA,
    LS_ENTRY_TOKENIZER,
    LS_ENTRY_EVALUATION,
    LS_ENTRY_KINDS,
    LS_ENTRY_AUTO = LS_ENTRY_KINDS, /* for a new entry: by its files */
} ls_registry_entry_kind;

/* "model", ...; the last one is "auto", then NULL. */
extern const char *const ls_registry_entry_kind_names[LS_ENTRY_KINDS + 2];

typedef struct ls_registry_entry_file {
    const char *name;
    uint64_t bytes;
    char sha256[LS_SHA256_HEX_BYTES];
} ls_registry_entry_file;

typedef struct ls_registry_entry_parent {
    char digest[LS_SHA256_HEX_BYTES];
    const char *as;
} ls_registry_entry_parent;

typedef struct ls_registry_entry {
    ls_registry_entry_kind kind;
    const char *name, *path, *who, *code;
    bool stored;
    double when_s;
    ls_registry_entry_file *files;
    size_t file_count;
    ls_registry_entry_parent *parents;
    size_t parent_count;
    json_t *facts; /* an object; owned */
} ls_registry_entry;

/* Drops the facts; the rest is the arena's. */
void ls_registry_entry_release(ls_registry_entry *entry);

/* The document, in `arena`. Sorts the files. Errors: LS_ERR_INVALID naming what a document cannot
 * hold: a name of a file that is not UTF-8 or leads out of its folder. */
LS_MUST_CHECK ls_status ls_registry_entry_encode(ls_arena *arena, ls_registry_entry *entry,
                                                 const char **text_out, size_t *bytes_out);

/* name: for messages. Release in any case after LS_OK. Errors: LS_ERR_DATA; LS_ERR_UNSUPPORTED for
 * another version. */
LS_MUST_CHECK ls_status ls_registry_entry_decode(ls_arena *arena, const char *text, size_t bytes,
                                                 const char *name, ls_registry_entry *entry_out);

/* Lists as in the document; the caller drops them. bad_out: a name that is not UTF-8, and is left
 * out; may be NULL. */
json_t *ls_registry_entry_files(const ls_registry_entry *entry, const char **bad_out);
json_t *ls_registry_entry_parents(const ls_registry_entry *entry);

/* Sum over the files. */
uint64_t ls_registry_entry_bytes(const ls_registry_entry *entry);

/* LS_ERR_INVALID unless `name` is a name of models and the like: letters, digits, '.', '_' and '-',
 * the first one a letter or digit; 1 to LS_ENTRY_NAME_BYTES_MAX long. */
LS_MUST_CHECK ls_status ls_registry_entry_check_name(const char *name);

#endif
