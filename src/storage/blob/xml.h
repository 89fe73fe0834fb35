// SPDX-License-Identifier: Apache-2.0
/*
 * The XML of S3 and STS answers: a walk over elements, for answers whose leaves hold text.
 *
 * Trusts nothing: at most LS_XML_DEPTH_MAX levels; document types and CDATA, which these services
 * do not send, are refused. Attributes are skipped. Pure.
 */
#ifndef LS_STORAGE_BLOB_XML_H
#define LS_STORAGE_BLOB_XML_H

#include "base/status.h"

#include <stddef.h>

enum { LS_XML_DEPTH_MAX = 16, LS_XML_NAME_BYTES_MAX = 64 };

/*
 * Called when an element ends, its children before it. text: its characters since the last tag,
 * with &amp; and the like replaced; valid during the call. A status other than LS_OK ends the walk.
 */
typedef ls_status (*ls_xml_element)(void *context, const char *name, const char *text);

/* what: begins error texts, "the answer of HOST". Errors: LS_ERR_DATA, or what `element` gave. */
LS_MUST_CHECK ls_status ls_xml_walk(const char *text, size_t bytes, const char *what, ls_xml_element element,
                                    void *context);

#endif
