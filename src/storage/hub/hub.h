// SPDX-License-Identifier: Apache-2.0
/*
 * A hub of models: fetches one by HTTPS, as the Hugging Face Hub and its mirrors serve them.
 *
 *   GET ENDPOINT/api/models/ORG/NAME/revision/REVISION?blobs=true    files, sizes, SHA-256, commit
 *   GET ENDPOINT/ORG/NAME/resolve/COMMIT/FILE                        with Range, after redirects
 *
 * Only what a model needs is fetched: configuration, tokenizer, template, safetensors; never
 * pickles, which are programs. Files are gathered in FOLDER.part and checked (size, and SHA-256
 * where the hub has one); then the folder gets its name, so FOLDER is whole or not there. What is
 * in FOLDER.part when a fetch ends early is used by the next one. A file whose size is not listed
 * may have 256 MiB.
 *
 * Every file is that of the commit that the list names, also if the revision moves meanwhile.
 *
 * The token goes to the endpoint only, never to where it redirects, and never over http:// unless
 * to this machine.
 *
 * Source: https://huggingface.co/docs/hub/api and the library huggingface_hub.
 */
#ifndef LS_STORAGE_HUB_HUB_H
#define LS_STORAGE_HUB_HUB_H

#include "base/arena.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_hub_options {
    const char *endpoint;   /* "https://huggingface.co" */
    const char *repository; /* "ORG/NAME" */
    const char *revision;   /* branch, tag or commit: "main" */
    const char *folder;     /* must not exist, or be empty */
    const char *token;      /* NULL: none */
    /* Called often; done and total: bytes of `file`. NULL: none. */
    void (*progress)(void *context, const char *file, uint64_t done, uint64_t total);
    void *context;
} ls_hub_options;

typedef struct ls_hub_pulled {
    const char *commit; /* in the arena; "" if the hub names none */
    size_t files;
    uint64_t bytes;
    uint64_t reused_bytes; /* of these, from an earlier fetch */
} ls_hub_pulled;

/* The token of the user: $HF_TOKEN, else the file $HF_TOKEN_PATH, $HF_HOME/token or
 * ~/.cache/huggingface/token. NULL: none. In `arena`. */
const char *ls_hub_token(ls_arena *arena);

/*
 * Fetches a model. A connection that is cut, or a server that is busy (429, 5xx; Retry-After is
 * kept to, up to 5 minutes), is tried again, up to 5 times in a row without any progress.
 *
 * Errors: LS_ERR_INVALID for a name or folder that can't be used, a token that would travel
 * unencrypted; LS_ERR_NOT_FOUND; LS_ERR_FAILED when access is refused, with what to do;
 * LS_ERR_UNSUPPORTED for a model without safetensors; LS_ERR_DATA for a file that is not what the
 * hub lists; LS_ERR_DISK, LS_ERR_IO, LS_ERR_TIMEOUT.
 */
LS_MUST_CHECK ls_status ls_hub_pull(const ls_hub_options *options, ls_arena *arena,
                                    ls_hub_pulled *pulled_out);

#endif
