# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=FILE.c "-DINPUTS=a.csv;b.csv" -P embed.cmake: files as C arrays, in a table that src/planning/hardware/data_file.h declares.
# The numbers of a file's bytes are its text; what is in a file can't break the C.
set(text "/* Made by cmake/embed.cmake from the files of data/. */\n#include \"planning/hardware/data_file.h\"\n\n")
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
string(APPEND text "\nconst ls_data_file ls_data_files[] = {\n${table}    {0}};\n")
file(WRITE ${OUTPUT} "${text}")
