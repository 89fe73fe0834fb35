// SPDX-License-Identifier: Apache-2.0
/*
 * Bundles: a set of files with digests, to be carried to a place without a network.
 *
 *   BUNDLE.json           what it is, and name, length and SHA-256 of every other file
 *   BUNDLE.json.minisig   the signature of BUNDLE.json, if it is signed (storage/bundle/signature.h)
 *   run/run.yaml, ...     the files
 *
 * A bundle is a folder, or a tar archive (ustar; sizes from 8 GiB on as GNU tar writes them) with
 * these files in this order, packed with zstd or not. So other programs can read and make one:
 *
 *   tar -xf FILE.tar.zst; sha256sum ...; minisign -V -p minisign.pub -m BUNDLE.json
 *
 * BUNDLE.json:
 *
 *   {"format": "lockstep-bundle", "version": 1, "about": {...},     about: free form
 *    "files": [{"name": "run/run.yaml", "bytes": 1, "sha256": "<64 digits>"}, ...]}
 *
 * Nothing that arrives is trusted. The signature is checked first, then every member against
 * BUNDLE.json: its name must be listed there, it must be a plain file and have exactly the length
 * given there, so an archive can neither leave the folder nor grow beyond what it declares. Memory
 * does not depend on the sizes of the files.
 */
#ifndef LS_STORAGE_BUNDLE_BUNDLE_H
#define LS_STORAGE_BUNDLE_BUNDLE_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "storage/bundle/signature.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_BUNDLE_NAME      "BUNDLE.json"
#define LS_BUNDLE_SIGNATURE "BUNDLE.json.minisig"

enum { LS_BUNDLE_FILES_MAX = 100000, LS_BUNDLE_JSON_BYTES_MAX = 64 << 20, LS_BUNDLE_NAME_BYTES_MAX = 100 };

/* A file of a bundle. */
typedef struct ls_bundle_file {
    const char *name; /* "run/run.yaml" */
    const char *path; /* where its content comes from; NULL: data */
    const void *data;
    uint64_t bytes;
    char sha256[LS_SHA256_HEX_BYTES];
} ls_bundle_file;

typedef struct ls_bundle {
    json_t *about; /* an object */
    ls_bundle_file *files;
    size_t count;
} ls_bundle;

/*
 * Whether a file may have this name: parts between slashes, none of them empty, "." or "..",
 * without control characters and backslashes, at most LS_BUNDLE_NAME_BYTES_MAX bytes, and not one
 * of the two names above. Errors: LS_ERR_INVALID naming it.
 */
LS_MUST_CHECK ls_status ls_bundle_check_name(const char *name);

/*
 * Length and digest of each file that has a path; what its content must still be when it is packed.
 * Errors: LS_ERR_INVALID for something that is no plain file, LS_ERR_NOT_FOUND, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_bundle_measure(ls_bundle *bundle);

/*
 * Writes a measured bundle to `path`, which must not exist: an archive if its name ends with
 * .tar.zst or .tar, else a folder. It appears when it is whole. key: NULL, or what it is signed
 * with. Errors: LS_ERR_INVALID (names, two files of one name, `path` exists); LS_ERR_DATA for a
 * file that has changed since it was measured; LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_bundle_pack(const ls_bundle *bundle, const char *path, const ls_signing_key *key);

/* What is known about the sender. */
typedef struct ls_bundle_sender {
    bool is_signed, is_checked; /* is_checked: by the key that was given */
    ls_signature signature;     /* if it is signed */
} ls_bundle_sender;

/*
 * Reads the bundle `path` and checks all of it. folder: NULL, or where its files are placed; it
 * must not exist, and appears when everything is checked. key: NULL, or whose signature is asked
 * for.
 *
 * bundle_out: in `arena`, with `about` to be released by json_decref; paths are NULL. Errors:
 * LS_ERR_DATA naming the file and what is wrong with it, or that the signature is missing or not
 * that of the key; LS_ERR_INVALID if `folder` exists; LS_ERR_DISK also when the
 * files need more than is free; LS_ERR_NOT_FOUND, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_bundle_open(ls_arena *arena, const char *path, const char *folder,
                                       const ls_public_key *key, ls_bundle *bundle_out,
                                       ls_bundle_sender *sender_out);

#endif
