# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: the program with its helper, man pages and completion scripts, and the collectives library for other programs.
include(GNUInstallDirs)

if(TARGET lockstep)
  # Man pages and completion scripts are written by the program itself, from the tables that --help uses.
  set(manual ${PROJECT_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/stamp DEPENDS lockstep VERBATIM
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${manual}
    COMMAND lockstep manual ${manual}
    COMMAND ${CMAKE_COMMAND} -E touch ${manual}/stamp)
  add_custom_target(manual ALL DEPENDS ${manual}/stamp)

  install(TARGETS lockstep)
  install(TARGETS lockstep-as-user RUNTIME DESTINATION libexec/lockstep)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep.service.in ${PROJECT_BINARY_DIR}/lockstep.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/lockstep.service DESTINATION lib/systemd/system)
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${manual}/completions/lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${manual}/completions/_lockstep DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

if(TARGET ls_comm)
  # One archive of the layers that the collectives need; a program takes from it only what it calls.
  add_library(lockstep-comm STATIC)
  foreach(layer comm compute env base)
    target_sources(lockstep-comm PRIVATE $<TARGET_OBJECTS:ls_${layer}>)
  endforeach()
  foreach(isa generic avx2 avx512)
    if(TARGET ls_compute_${isa})
      target_sources(lockstep-comm PRIVATE $<TARGET_OBJECTS:ls_compute_${isa}>)
    endif()
  endforeach()
  set_target_properties(lockstep-comm PROPERTIES LINKER_LANGUAGE C)

  # The paths in lockstep-comm.pc are relative to the file, so that the installed tree can be moved.
  file(RELATIVE_PATH LS_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" LS_PC_PREFIX ${LS_PC_PREFIX})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-comm.pc.in ${PROJECT_BINARY_DIR}/lockstep-comm.pc @ONLY)
  install(TARGETS lockstep-comm)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${PROJECT_BINARY_DIR}/lockstep-comm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
