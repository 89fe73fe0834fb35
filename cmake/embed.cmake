# SPDX-License-Identifier: Apache-2.0
# Files as C arrays, in a table of ls_embedded_file (base/embedded.h):
#   cmake -DTABLE=ls_data_files -DOUTPUT=FILE.c "-DINPUTS=a.csv;b.csv" -P embed.cmake
# Bytes are written as numbers, so nothing in a file can break the C.
set(text "/* Made by cmake/embed.cmake. */\n#include \"base/embedded.h\"\n\nextern const ls_embedded_file ${TABLE}[];\n\n")
set(table "")
set(count 0)
foreach(input ${INPUTS})
  get_filename_component(name ${input} NAME)
  file(READ ${input} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(LENGTH "${hex}" digits)
  math(EXPR length "${digits} / 2")
  string(APPEND text "static const unsigned char file_${count}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${name}\", (const char *)file_${count}, ${length}},\n")
  math(EXPR count "${count} + 1")
endforeach()
string(APPEND text "\nconst ls_embedded_file ${TABLE}[] = {\n${table}    {0}};\n")
file(WRITE ${OUTPUT} "${text}")
