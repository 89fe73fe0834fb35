// SPDX-License-Identifier: Apache-2.0
/* What a failed job printed last: the line that explains the error. */
#include "orchestration/engines/local/runner_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_BYTES = 16 * 1024 };

/* Whether a line has words by which programs report errors. */
static bool tells_of_error(const char *line)
{
    static const char *const words[] = {"lockstep: ", /* our own error lines begin like this */
                                        "error",      "exception", "fatal",  "failed",
                                        "panic",      "cannot",    "can't",  "no space",
                                        "denied",     "not found", "killed", "segmentation fault",
                                        "assertion",  "abort"};
    char small[512];
    size_t bytes = 0;
    for (; line[bytes] && bytes < sizeof small - 1; bytes++) {
        small[bytes] = (char)tolower((unsigned char)line[bytes]);
    }
    small[bytes] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strstr(small, words[i])) {
            return true;
        }
    }
    return false;
}

/* Removes terminal controls in place: "ESC [ ... letter", and text that a carriage return
 * overwrote. */
static char *strip_terminal(char *line)
{
    char *back = strrchr(line, '\r');
    char *from = back && back[1] ? back + 1 : line, *to = from, *start = from;
    while (*from) {
        if (from[0] == '\x1b' && from[1] == '[') {
            from += 2;
            from += strspn(from, "0123456789;:?");
            from += *from != '\0';
        } else if (*from == '\r') {
            from++;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return ls_text_trim(start);
}

/* The last line that explains an error, or ends a traceback; NULL: none. Changes the text. */
static char *choose_line(char *text)
{
    char *chosen = NULL;
    bool is_trace = false;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const bool is_indented = isspace((unsigned char)*line);
        line = strip_terminal(line);
        if (strncmp(line, "Traceback ", 10) == 0) {
            is_trace = true;
        } else if (*line && ((is_trace && !is_indented) || tells_of_error(line))) {
            chosen = line;
            is_trace = is_trace && is_indented;
        }
    }
    return chosen;
}

void ls_local_last_words(int log, off_t from, char error[LS_TICKET_ERROR_BYTES])
{
    char text[TAIL_BYTES + 1];
    struct stat info;
    if (log < 0 || fstat(log, &info) != 0 || info.st_size <= from) {
        return;
    }
    const off_t begin = info.st_size - from > TAIL_BYTES ? info.st_size - TAIL_BYTES : from;
    const ssize_t got = pread(log, text, TAIL_BYTES, begin);
    for (ssize_t i = 0; i < got; i++) {
        text[i] = text[i] ? text[i] : ' ';
    }
    text[got > 0 ? got : 0] = '\0';
    const char *line = choose_line(text);
    if (line) {
        snprintf(error, LS_TICKET_ERROR_BYTES, "%s", line);
    }
}
