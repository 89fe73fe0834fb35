// SPDX-License-Identifier: Apache-2.0
#include "storage/bundle/signature.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_FILE_BYTES_MAX = 1 << 16, LINE_BYTES_MAX = 1200, DIGEST_BYTES = 64 };
enum { PUBLIC_BYTES = 2 + LS_KEY_NAME_BYTES + LS_ED25519_KEY_BYTES };
enum { SIGNED_BYTES = 2 + LS_KEY_NAME_BYTES + LS_ED25519_SIGNATURE_BYTES };

struct ls_signing_key {
    EVP_PKEY *key;
};

/* ---- base64 ---- */

static void append_base64(ls_text *text, const unsigned char *data, size_t bytes)
{
    unsigned char out[4 * ((SIGNED_BYTES + 2) / 3) + 1];
    LS_ASSERT(bytes <= SIGNED_BYTES);
    ls_text_append_bytes(text, out, (size_t)EVP_EncodeBlock(out, data, (int)bytes));
}

/* True if `text` of `length` characters is exactly `bytes` bytes in base64. */
static bool decode_base64(const char *text, size_t length, unsigned char *out, size_t bytes)
{
    unsigned char room[SIGNED_BYTES + 3];
    if (bytes > SIGNED_BYTES || length != 4 * ((bytes + 2) / 3) ||
        EVP_DecodeBlock(room, (const unsigned char *)text, (int)length) < 0) {
        return false;
    }
    memcpy(out, room, bytes);
    return true;
}

/* ---- keys ---- */

void ls_key_name_hex(const unsigned char name[LS_KEY_NAME_BYTES], char hex_out[LS_KEY_NAME_HEX_BYTES])
{
    /* A number, least significant byte first. */
    for (size_t i = 0; i < LS_KEY_NAME_BYTES; i++) {
        snprintf(hex_out + 2 * i, 3, "%02X", name[LS_KEY_NAME_BYTES - 1 - i]);
    }
}

static void name_key(ls_public_key *key)
{
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(key->bytes, sizeof key->bytes, hex);
    for (size_t i = 0; i < LS_KEY_NAME_BYTES; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        key->name[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
}

/* A password would have to be asked for: none is given, so that reading fails. */
static int no_password(char *to, int bytes, int writing, void *context)
{
    (void)to, (void)bytes, (void)writing, (void)context;
    return -1;
}

/* Reads `path` as PEM; NULL if it is not a key of this kind. */
static EVP_PKEY *parse_pem(const char *text, size_t bytes, bool is_private)
{
    BIO *bio = BIO_new_mem_buf(text, (int)bytes);
    EVP_PKEY *key = NULL;
    if (bio) {
        key = is_private ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL)
                         : PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    }
    BIO_free(bio);
    return key;
}

ls_status ls_signing_key_open(const char *path, ls_signing_key **key_out)
{
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0;
    ls_status status = ls_file_read(&arena, path, KEY_FILE_BYTES_MAX, &text, &bytes);
    EVP_PKEY *key = status == LS_OK ? parse_pem(text, bytes, true) : NULL;
    if (status == LS_OK && (!key || EVP_PKEY_get_base_id(key) != EVP_PKEY_ED25519)) {
        const char *what = key                                         ? "a key of another kind"
                           : strstr(text, "ENCRYPTED")                 ? "an encrypted key"
                           : strstr(text, "BEGIN PUBLIC KEY")          ? "a public key"
                           : strstr(text, "minisign encrypted secret") ? "a key of minisign"
                                                                       : "no key";
        status = ls_fail(LS_ERR_INVALID,
                         "%s is %s; a private Ed25519 key in PEM without a password is needed, as 'openssl "
                         "genpkey -algorithm ed25519 -out key.pem' makes it%s",
                         path, what,
                         strstr(what, "minisign") ? "; to sign with minisign, pack into a folder and sign "
                                                    "its BUNDLE.json"
                                                  : "");
    }
    if (text) {
        explicit_bzero(text, bytes);
    }
    ls_arena_release(&arena);
    if (status != LS_OK) {
        EVP_PKEY_free(key);
        return status;
    }
    *key_out = malloc(sizeof **key_out);
    LS_ASSERT(*key_out != NULL);
    (*key_out)->key = key;
    return LS_OK;
}

void ls_signing_key_close(ls_signing_key *key)
{
    if (key) {
        EVP_PKEY_free(key->key);
        free(key);
    }
}

void ls_signing_key_public(const ls_signing_key *key, ls_public_key *public_out)
{
    size_t bytes = sizeof public_out->bytes;
    LS_ASSERT(EVP_PKEY_get_raw_public_key(key->key, public_out->bytes, &bytes) == 1);
    public_out->has_name = false;
    name_key(public_out);
}

/* minisign.pub: a comment and base64("Ed", name, key). */
static bool parse_minisign(const char *text, ls_public_key *key_out)
{
    unsigned char raw[PUBLIC_BYTES];
    const char *line = strncmp(text, "untrusted comment:", 18) == 0 ? strchr(text, '\n') : NULL;
    line = line ? line + 1 : text;
    if (!decode_base64(line, strcspn(line, "\r\n"), raw, sizeof raw) || memcmp(raw, "Ed", 2) != 0) {
        return false;
    }
    key_out->has_name = true;
    memcpy(key_out->name, raw + 2, sizeof key_out->name);
    memcpy(key_out->bytes, raw + 2 + LS_KEY_NAME_BYTES, sizeof key_out->bytes);
    return true;
}

ls_status ls_public_key_load(const char *path, ls_public_key *key_out)
{
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0, raw = sizeof key_out->bytes;
    ls_public_key key = {0};
    ls_status status = ls_file_read(&arena, path, KEY_FILE_BYTES_MAX, &text, &bytes);
    if (status == LS_OK && !parse_minisign(text, &key)) {
        EVP_PKEY *pem = parse_pem(text, bytes, false);
        if (pem && EVP_PKEY_get_base_id(pem) == EVP_PKEY_ED25519 &&
            EVP_PKEY_get_raw_public_key(pem, key.bytes, &raw) == 1) {
            name_key(&key);
        } else {
            status = ls_fail(LS_ERR_INVALID,
                             "%s is not a public Ed25519 key in PEM ('openssl pkey -in key.pem -pubout') or "
                             "of minisign (minisign.pub)",
                             path);
        }
        EVP_PKEY_free(pem);
    }
    if (text) {
        explicit_bzero(text, bytes); /* it may be a private one */
    }
    ls_arena_release(&arena);
    LS_TRY(status);
    *key_out = key;
    return LS_OK;
}

void ls_public_key_append(const ls_public_key *key, ls_text *text)
{
    unsigned char raw[PUBLIC_BYTES] = {'E', 'd'};
    memcpy(raw + 2, key->name, sizeof key->name);
    memcpy(raw + 2 + LS_KEY_NAME_BYTES, key->bytes, sizeof key->bytes);
    append_base64(text, raw, sizeof raw);
}

/* ---- signing ---- */

static bool sign(EVP_PKEY *key, const void *data, size_t bytes, unsigned char *out)
{
    size_t length = LS_ED25519_SIGNATURE_BYTES;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool good = context && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
                      EVP_DigestSign(context, out, &length, data, bytes) == 1;
    EVP_MD_CTX_free(context);
    return good;
}

static bool digest_of(const void *data, size_t bytes, unsigned char out[DIGEST_BYTES])
{
    return EVP_Digest(data, bytes, out, NULL, EVP_blake2b512(), NULL) == 1;
}

ls_status ls_signature_make(const ls_signing_key *key, const void *data, size_t bytes, const char *comment,
                            ls_text *text)
{
    unsigned char raw[SIGNED_BYTES] = {'E', 'D'}, digest[DIGEST_BYTES];
    unsigned char both[LS_ED25519_SIGNATURE_BYTES + LS_SIGNATURE_COMMENT_BYTES_MAX];
    unsigned char *signature = raw + 2 + LS_KEY_NAME_BYTES, of_comment[LS_ED25519_SIGNATURE_BYTES];
    const size_t comment_bytes = strlen(comment);
    ls_public_key named;
    LS_ASSERT(comment_bytes <= LS_SIGNATURE_COMMENT_BYTES_MAX && !strpbrk(comment, "\r\n"));
    ls_signing_key_public(key, &named);
    memcpy(raw + 2, named.name, sizeof named.name);
    bool good = digest_of(data, bytes, digest) && sign(key->key, digest, sizeof digest, signature);
    memcpy(both, signature, LS_ED25519_SIGNATURE_BYTES);
    memcpy(both + LS_ED25519_SIGNATURE_BYTES, comment, comment_bytes);
    good = good && sign(key->key, both, LS_ED25519_SIGNATURE_BYTES + comment_bytes, of_comment);
    if (!good) {
        return ls_fail(LS_ERR_FAILED, "OpenSSL could not sign");
    }
    ls_text_append(text, "untrusted comment: signature of a lockstep bundle\n");
    append_base64(text, raw, sizeof raw);
    ls_text_printf(text, "\ntrusted comment: %s\n", comment);
    append_base64(text, of_comment, sizeof of_comment);
    ls_text_append(text, "\n");
    return LS_OK;
}

/* ---- checking ---- */

/* The next line without its end; false if there is none, or it is too long. */
static bool next_line(const char **at, const char *end, const char **line_out, size_t *bytes_out)
{
    const char *line = *at, *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (line >= end) {
        return false;
    }
    stop = stop ? stop : end;
    *at = stop < end ? stop + 1 : end;
    *line_out = line;
    *bytes_out = (size_t)(stop - line);
    *bytes_out -= *bytes_out > 0 && line[*bytes_out - 1] == '\r';
    return *bytes_out <= LINE_BYTES_MAX;
}

static bool parse(const char *text, size_t bytes, ls_signature *s)
{
    static const char begin[] = "trusted comment: ";
    const char *at = text, *end = text + bytes, *line = NULL;
    unsigned char raw[SIGNED_BYTES];
    size_t length = 0;
    if (!next_line(&at, end, &line, &length) || length < 18 || memcmp(line, "untrusted comment:", 18) != 0 ||
        !next_line(&at, end, &line, &length) || !decode_base64(line, length, raw, sizeof raw) ||
        raw[0] != 'E' || (raw[1] != 'D' && raw[1] != 'd')) {
        return false;
    }
    s->of_digest = raw[1] == 'D';
    memcpy(s->key_name, raw + 2, sizeof s->key_name);
    memcpy(s->bytes, raw + 2 + LS_KEY_NAME_BYTES, sizeof s->bytes);
    if (!next_line(&at, end, &line, &length) || length < sizeof begin - 1 ||
        length - (sizeof begin - 1) > LS_SIGNATURE_COMMENT_BYTES_MAX ||
        memcmp(line, begin, sizeof begin - 1) != 0 || memchr(line, '\0', length)) {
        return false;
    }
    memcpy(s->comment, line + sizeof begin - 1, length - (sizeof begin - 1));
    return next_line(&at, end, &line, &length) &&
           decode_base64(line, length, s->of_comment, sizeof s->of_comment);
}

ls_status ls_signature_parse(const char *text, size_t bytes, const char *name, ls_signature *signature_out)
{
    ls_signature signature = {0};
    if (!parse(text, bytes, &signature)) {
        return ls_fail(LS_ERR_DATA, "%s is not a signature in minisign's format", name);
    }
    *signature_out = signature;
    return LS_OK;
}

static bool verify(EVP_PKEY *key, const unsigned char *signature, const void *data, size_t bytes)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool good = context && key && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                      EVP_DigestVerify(context, signature, LS_ED25519_SIGNATURE_BYTES, data, bytes) == 1;
    EVP_MD_CTX_free(context);
    return good;
}

static bool is_of_data(const ls_signature *s, EVP_PKEY *key, const void *data, size_t bytes)
{
    unsigned char digest[DIGEST_BYTES];
    return s->of_digest ? digest_of(data, bytes, digest) && verify(key, s->bytes, digest, sizeof digest)
                        : verify(key, s->bytes, data, bytes);
}

ls_status ls_signature_check(const ls_signature *s, const ls_public_key *key, const void *data, size_t bytes)
{
    unsigned char both[LS_ED25519_SIGNATURE_BYTES + LS_SIGNATURE_COMMENT_BYTES_MAX];
    const size_t comment_bytes = strlen(s->comment);
    char by[LS_KEY_NAME_HEX_BYTES], wanted[LS_KEY_NAME_HEX_BYTES];
    ls_key_name_hex(s->key_name, by);
    ls_key_name_hex(key->name, wanted);
    if (key->has_name && memcmp(s->key_name, key->name, sizeof key->name) != 0) {
        return ls_fail(LS_ERR_DATA, "it is signed by key %s, and the key given is %s", by, wanted);
    }
    EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->bytes, sizeof key->bytes);
    memcpy(both, s->bytes, sizeof s->bytes);
    memcpy(both + sizeof s->bytes, s->comment, comment_bytes);
    const bool good = is_of_data(s, pkey, data, bytes);
    const bool comment_good = verify(pkey, s->of_comment, both, sizeof s->bytes + comment_bytes);
    EVP_PKEY_free(pkey);
    if (good && comment_good) {
        return LS_OK;
    }
    return ls_fail(
        LS_ERR_DATA,
        good ? "the comment of its signature by key %s was changed"
             : "the signature by key %s is not valid: the file was changed, or a key other than the one "
               "given signed it",
        by);
}
