// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/xml.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const char *at, *end, *what;
    ls_xml_element element;
    void *context;
    char names[LS_XML_DEPTH_MAX][LS_XML_NAME_BYTES_MAX + 1];
    size_t depth;
    bool had_root;
    ls_text text;
} walk;

static ls_status bad(const walk *w, const char *problem)
{
    return ls_fail(LS_ERR_DATA, "%s is not the XML of an object store: %s", w->what, problem);
}

/* ---- text ---- */

static void append_utf8(ls_text *text, unsigned long c)
{
    char bytes[4];
    if (c < 0x80) {
        bytes[0] = (char)c;
        ls_text_append_bytes(text, bytes, 1);
        return;
    }
    const size_t count = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = count; i-- > 1; c >>= 6) {
        bytes[i] = (char)(0x80 | (c & 0x3f));
    }
    bytes[0] = (char)((count == 2 ? 0xc0 : count == 3 ? 0xe0 : 0xf0) | c);
    ls_text_append_bytes(text, bytes, count);
}

/* The entity at `at`, which is an ampersand. */
static ls_status take_entity(walk *w)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    const size_t left = (size_t)(w->end - w->at);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t bytes = strlen(names[i]);
        if (left >= bytes && memcmp(w->at, names[i], bytes) == 0) {
            ls_text_append_bytes(&w->text, &"&<>\"'"[i], 1);
            w->at += bytes;
            return LS_OK;
        }
    }
    char number[12] = "", *rest = NULL;
    const char *semicolon = memchr(w->at, ';', left < sizeof number ? left : sizeof number);
    if (!semicolon || semicolon - w->at < 3 || w->at[1] != '#') {
        return bad(w, "an entity that is not known");
    }
    const bool is_hex = w->at[2] == 'x';
    const char *digits = w->at + (is_hex ? 3 : 2);
    memcpy(number, digits, (size_t)(semicolon - digits));
    const unsigned long c = strtoul(number, &rest, is_hex ? 16 : 10);
    if (!strchr("0123456789abcdefABCDEF", number[0]) || !number[0] || *rest || c == 0 || c > 0x10ffff) {
        return bad(w, "a character number that is out of range");
    }
    append_utf8(&w->text, c);
    w->at = semicolon + 1;
    return LS_OK;
}

/* ---- tags ---- */

static bool begins(const walk *w, const char *text)
{
    const size_t bytes = strlen(text);
    return (size_t)(w->end - w->at) >= bytes && memcmp(w->at, text, bytes) == 0;
}

/* Skips up to and with `mark`. */
static ls_status skip(walk *w, const char *mark)
{
    const char *found = memmem(w->at, (size_t)(w->end - w->at), mark, strlen(mark));
    if (!found) {
        return bad(w, "it ends within a tag");
    }
    w->at = found + strlen(mark);
    return LS_OK;
}

/* The name at `at`. */
static ls_status take_name(walk *w, char name_out[LS_XML_NAME_BYTES_MAX + 1])
{
    size_t bytes = 0;
    while (w->at + bytes < w->end && !strchr(" \t\r\n/>", w->at[bytes])) {
        bytes++;
    }
    if (bytes == 0 || bytes > LS_XML_NAME_BYTES_MAX) {
        return bad(w, "a tag without a name, or with one that is too long");
    }
    memcpy(name_out, w->at, bytes);
    name_out[bytes] = '\0';
    w->at += bytes;
    return LS_OK;
}

static ls_status close_element(walk *w)
{
    w->depth--;
    const ls_status status = w->element(w->context, w->names[w->depth], ls_text_string(&w->text));
    ls_text_clear(&w->text);
    return status;
}

static ls_status take_end_tag(walk *w)
{
    char name[LS_XML_NAME_BYTES_MAX + 1];
    w->at += 2;
    LS_TRY(take_name(w, name));
    LS_TRY(skip(w, ">"));
    if (w->depth == 0 || strcmp(name, w->names[w->depth - 1]) != 0) {
        return bad(w, "tags that do not close each other");
    }
    return close_element(w);
}

static ls_status take_begin_tag(walk *w)
{
    w->at++;
    if (w->depth == LS_XML_DEPTH_MAX || (w->depth == 0 && w->had_root)) {
        return bad(w, w->depth ? "elements in too many levels" : "more than one root");
    }
    w->had_root = true;
    LS_TRY(take_name(w, w->names[w->depth++]));
    LS_TRY(skip(w, ">"));
    ls_text_clear(&w->text);
    return w->at[-2] == '/' ? close_element(w) : LS_OK;
}

static ls_status take_tag(walk *w)
{
    if (begins(w, "<?")) {
        return skip(w, "?>");
    }
    if (begins(w, "<!--")) {
        return skip(w, "-->");
    }
    if (begins(w, "<!")) {
        return bad(w, "a document type or CDATA");
    }
    return begins(w, "</") ? take_end_tag(w) : take_begin_tag(w);
}

ls_status ls_xml_walk(const char *text, size_t bytes, const char *what, ls_xml_element element, void *context)
{
    walk w = {.at = text, .end = text + bytes, .what = what, .element = element, .context = context};
    ls_status status = LS_OK;
    if (bytes > 0 && memchr(text, '\0', bytes)) {
        status = bad(&w, "a zero byte");
    }
    while (status == LS_OK && w.at < w.end) {
        if (*w.at == '<') {
            status = take_tag(&w);
        } else if (*w.at == '&') {
            status = take_entity(&w);
        } else {
            ls_text_append_bytes(&w.text, w.at++, 1);
        }
    }
    if (status == LS_OK && (w.depth > 0 || !w.had_root)) {
        status = bad(&w, w.had_root ? "it is cut off" : "it has no element");
    }
    ls_text_release(&w.text);
    return status;
}
