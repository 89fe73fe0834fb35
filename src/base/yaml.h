// SPDX-License-Identifier: Apache-2.0
/*
 * YAML: configuration files as a jansson tree that remembers its lines.
 *
 * The part of YAML 1.2 that a configuration needs: mappings, sequences and scalars, block and flow
 * style, comments, one document. Plain scalars follow the core schema:
 *
 *   null ~ (empty)            null               true True TRUE false ...      boolean
 *   12 -3 0x1f 0o17           integer            1.0e-3 .5 1e9                 number
 *   anything else, anything in quotes or block   string ("2h", yes, on and 1:30 are strings)
 *
 * Refused with file and line, because they hide mistakes or attacks rather than help: a key that
 * appears twice in one mapping, anchors and aliases (and with them alias bombs and merge keys),
 * tags, directives, keys that are not scalars, a second document, .nan and .inf, integers beyond 64
 * bits, zero bytes in strings, more than LS_YAML_DEPTH levels, texts above LS_YAML_BYTES.
 *
 * All errors of the text are LS_ERR_INVALID and read "FILE:LINE: what"; a file that can't be read
 * is LS_ERR_NOT_FOUND or LS_ERR_IO. Thread-safe; a document belongs to one thread at a time.
 */
#ifndef LS_BASE_YAML_H
#define LS_BASE_YAML_H

#include "base/arena.h"
#include "base/status.h"

#include <jansson.h>

enum { LS_YAML_DEPTH = 64, LS_YAML_KEY_BYTES = 256, LS_YAML_BYTES = 16 * 1024 * 1024 };

typedef struct ls_document_node ls_document_node; /* private: lines, in the shape of the tree */

typedef struct ls_document {
    json_t *root;            /* owned by the document */
    const char *name;        /* the path, or the name given to the text */
    ls_document_node *lines; /* private */
    ls_arena arena;          /* private */
} ls_document;

/* Reads and parses a file. The caller releases `doc_out`, which is untouched on error. */
LS_MUST_CHECK ls_status ls_yaml_load(const char *path, ls_document *doc_out);

/* Parses `bytes` of text; errors show `name` in place of the file. text need not be
 * zero-terminated. */
LS_MUST_CHECK ls_status ls_yaml_parse(const char *text, size_t bytes, const char *name, ls_document *doc_out);

void ls_document_release(ls_document *doc);

/*
 * The line (from 1) of the key with a dotted path: "train.schedule.kind"; items of a sequence are
 * numbered: "data.train.0.path". "" is the root. 0 if the path does not exist.
 */
int ls_document_line(const ls_document *doc, const char *path);

#endif
