# SPDX-License-Identifier: Apache-2.0
# tests/<layer>/<room>/test_*.c: one cmocka executable per module, linked against its layer and what that may include.
# tests/<layer>/<room>/*.test.sh: integration tests, run with LOCKSTEP=<binary>; exit 77 means skipped.
# Names are <layer>.<file>, whatever the room. tests/sim/env is the simulated env, linked to whatever asks for it.
# tests/fuzz/fuzz_*.c: libFuzzer targets, alone in the preset fuzz.  bench/bench_*.c: benches, only in Release, never run by ctest.
# Labels: unit, integration, sim, fuzz; slow for what ./test.sh --quick leaves out; threads for what the preset tsan builds and runs. LS_TEST_LAYERS leaves out the other layers.
set(LS_LAYERS base env storage tokenizer model config compute comm data planning telemetry execution orchestration)
set(LS_THREADED_LAYERS env compute storage tokenizer comm data execution)
# Tests of these layers that start no thread, so that the thread sanitizer has nothing to find. One that starts a thread all the same fails
# (tests/no_threads.c).
set(LS_TESTS_WITHOUT_THREADS
  env.database env.env_sim env.http_guard env.program env.user compute.math storage.blob storage.blob_faults storage.blocks storage.bundle storage.manifest
  storage.registry_faults storage.safetensors tokenizer.tokenizer_golden tokenizer.vocabulary
  comm.comm_wait comm.environment comm.store_sim data.bins data.content_hash data.corpus data.dataset_records data.language data.order data.parquet
  data.preparation_steps data.recipe data.token_file data.words execution.answer_text execution.checkpoint_interval execution.coordinator_log
  execution.freeze execution.launch execution.membership execution.membership_sim execution.mesh execution.meter execution.patience
  execution.preflight execution.rank_snapshot_wire execution.reform execution.request execution.run_snapshot execution.schedule execution.segment
  execution.slices execution.tree execution.update execution.watchdog execution.watchdog_hung execution.workers_sim)
set(LS_TEST_LAYERS "${LS_LAYERS}" CACHE STRING "layers whose unit tests are built")

# Links TARGET to every layer there is, as src/cli is.
function(ls_link_all target)
  foreach(layer ${LS_ALL_LAYERS})
    if(TARGET ls_${layer})
      target_link_libraries(${target} PRIVATE ls_${layer})
    endif()
  endforeach()
endfunction()

# Hundreds of programs are linked from here on: a fast linker halves that time.
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()

# The simulated env (tests/sim/env): the same table as the real one, over a seeded clock, disk and network.
file(GLOB sim_env_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/sim/env/*.c)
add_library(ls_sim_env STATIC ${sim_env_sources})
target_include_directories(ls_sim_env PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ls_sim_env PUBLIC ls_env)

if(LS_FUZZ)
  file(GLOB targets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
  foreach(source ${targets})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "fuzz_" "" short ${name})
    add_executable(${name} ${source})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ls_sim_env)
    ls_link_all(${name})
    # New inputs and crashes go to the build folder; the corpus of the source tree is only read.
    set(found ${PROJECT_BINARY_DIR}/corpus/${short})
    set(seeds ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${short})
    file(MAKE_DIRECTORY ${found} ${PROJECT_BINARY_DIR}/crashes)
    if(NOT IS_DIRECTORY ${seeds})
      message(FATAL_ERROR "${name} has no seeds: put at least one into tests/fuzz/corpus/${short}")
    endif()
    add_test(NAME fuzz.${short} COMMAND ${name} -max_total_time=5 -timeout=5 -rss_limit_mb=2048 -print_final_stats=1
             -artifact_prefix=${PROJECT_BINARY_DIR}/crashes/${short}- ${found} ${seeds})
    set_tests_properties(fuzz.${short} PROPERTIES TIMEOUT 600 LABELS fuzz)
  endforeach()
  return()
endif()

# cuda_on_cpu: the CUDA driver and our kernels as a library for the processor (tests/compute/cuda_on_cpu). Without a C++
# compiler, or on another processor than x86-64, its tests are skipped.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  enable_language(CXX)
  file(GLOB bed_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/compute/cuda_on_cpu/*.cpp)
  set_source_files_properties(${LS_CUDA_KERNELS} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  set(bed_optimise -O2)
  if(LS_SANITIZE)
    set(bed_optimise -O1)
  endif()
  add_library(cuda_on_cpu SHARED ${bed_sources} ${LS_CUDA_KERNELS})
  target_include_directories(cuda_on_cpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
  target_compile_features(cuda_on_cpu PRIVATE cxx_std_17)
  target_compile_options(cuda_on_cpu PRIVATE -Wall -Wextra -Wno-unknown-pragmas -fvisibility=hidden -ffp-contract=off -fno-math-errno
                         -march=native ${bed_optimise})
  if(LS_SANITIZE STREQUAL "thread") # only kernels are watched: what the bed itself does on fibers looks like races
    target_compile_definitions(cuda_on_cpu PRIVATE CUDA_ON_CPU_TSAN=1)
    set_source_files_properties(${bed_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
  target_link_libraries(cuda_on_cpu PRIVATE Threads::Threads)
  if(CCACHE)
    set_target_properties(cuda_on_cpu PROPERTIES CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
  set(LS_CUDA_ON_CPU $<TARGET_FILE:cuda_on_cpu>)
else()
  message(STATUS "no C++ compiler for x86-64: kernels for GPUs are not tested on the processor")
  set(LS_CUDA_ON_CPU "")
endif()

find_library(CMOCKA_LIBRARY cmocka)
if(NOT CMOCKA_LIBRARY)
  # The program can be built without; tests that could not be built must not count as passed.
  message(WARNING "no cmocka (Debian: libcmocka-dev): unit tests are not built, and ctest fails")
  set(LS_TEST_LAYERS "")
  add_test(NAME cmocka-is-missing COMMAND ${CMAKE_COMMAND} -E false)
endif()
foreach(layer ${LS_TEST_LAYERS})
  set(labels unit)
  if(layer IN_LIST LS_THREADED_LAYERS)
    list(APPEND labels threads)
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${layer}/test_*.c)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "test_" "" short ${name})
    set(no_threads "")
    if("${layer}.${short}" IN_LIST LS_TESTS_WITHOUT_THREADS)
      if(LS_SANITIZE STREQUAL "thread")
        continue()
      endif()
      set(no_threads ${PROJECT_SOURCE_DIR}/tests/no_threads.c)
    endif()
    add_executable(${layer}_${short}_test ${source} ${no_threads})
    if(no_threads)
      target_link_options(${layer}_${short}_test PRIVATE -Wl,--wrap=pthread_create)
    endif()
    target_link_libraries(${layer}_${short}_test PRIVATE ls_sim_env ls_${layer} ${CMOCKA_LIBRARY})
    target_include_directories(${layer}_${short}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${layer}_${short}_test PRIVATE LS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME ${layer}.${short} COMMAND ${layer}_${short}_test)
    set_tests_properties(${layer}.${short} PROPERTIES TIMEOUT 600 LABELS "${labels}" SKIP_RETURN_CODE 77)
    if(source MATCHES "/tests/compute/cuda/")
      # Where the library could not be built there may still be a GPU.
      if(TARGET cuda_on_cpu)
        add_dependencies(${layer}_${short}_test cuda_on_cpu)
      endif()
      set_tests_properties(${layer}.${short} PROPERTIES ENVIRONMENT "LOCKSTEP_CUDA_DRIVER=${LS_CUDA_ON_CPU};LOCKSTEP_CUBLASLT=${LS_CUDA_ON_CPU}")
      # Other orders of blocks, warps and lanes: a forgotten barrier shows under some of them.
      if(TARGET cuda_on_cpu AND NOT LS_SANITIZE)
        foreach(seed 2 3)
          add_test(NAME ${layer}.${short}-seed${seed} COMMAND ${layer}_${short}_test)
          set_tests_properties(${layer}.${short}-seed${seed} PROPERTIES TIMEOUT 600 LABELS unit SKIP_RETURN_CODE 77
            ENVIRONMENT "LOCKSTEP_CUDA_DRIVER=${LS_CUDA_ON_CPU};LOCKSTEP_CUBLASLT=${LS_CUDA_ON_CPU};LS_CUDA_SEED=${seed};LS_CUDA_THREADS=${seed}")
        endforeach()
      endif()
    endif()
  endforeach()
endforeach()

# lockstep-claims: writes docs/claims.md from the planner; not installed.
add_executable(lockstep-claims ${PROJECT_SOURCE_DIR}/tools/claims/main.c)
add_library(ls_claims STATIC ${PROJECT_SOURCE_DIR}/tools/claims/claims.c ${PROJECT_SOURCE_DIR}/tools/claims/claims_model.c
            ${PROJECT_SOURCE_DIR}/tools/claims/claims_money.c ${PROJECT_SOURCE_DIR}/tools/claims/claims_network.c)
target_include_directories(ls_claims PUBLIC ${PROJECT_SOURCE_DIR}/tools/claims)
target_link_libraries(ls_claims PUBLIC ls_planning)
target_link_libraries(lockstep-claims PRIVATE ls_claims)
if(CMOCKA_LIBRARY)
  add_executable(tools_claims_test ${PROJECT_SOURCE_DIR}/tests/tools/claims/test_claims.c)
  target_link_libraries(tools_claims_test PRIVATE ls_claims ${CMOCKA_LIBRARY})
  target_include_directories(tools_claims_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(tools_claims_test PRIVATE LS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME tools.claims COMMAND tools_claims_test)
  set_tests_properties(tools.claims PROPERTIES TIMEOUT 600 LABELS unit)
endif()

# lockstep-sim: the control plane in simulated worlds. Tests sim.<world>-<n> run ten thousand seeds together in Release, a
# twentieth of them elsewhere; sim.mutations breaks the program on purpose, in every way the worlds know, and wants each found.
function(ls_sim_test world parts seeds)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Release)
    math(EXPR seeds "${seeds} / 20")
  endif()
  foreach(part RANGE 1 ${parts})
    math(EXPR first "(${part} - 1) * ${seeds} + 1")
    math(EXPR last "${part} * ${seeds}")
    add_test(NAME sim.${world}-${part} COMMAND lockstep-sim --world ${world} --seeds ${first}..${last})
    set_tests_properties(sim.${world}-${part} PROPERTIES TIMEOUT 600 LABELS sim)
  endforeach()
endfunction()
file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/sim/*.c)
if(TARGET ls_execution AND "execution" IN_LIST LS_TEST_LAYERS)
  add_executable(lockstep-sim ${sim_sources})
  target_link_libraries(lockstep-sim PRIVATE ls_sim_env)
  ls_link_all(lockstep-sim)
  target_include_directories(lockstep-sim PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(lockstep-sim PRIVATE LS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  # Seams where mutations are put in: tests/sim/world_*.c have the other ends.
  foreach(seam ls_membership_next ls_coordinator_is_durable ls_store_session_opened ls_store_message_parse ls_store_server_set_epoch ls_host_side_form
          ls_reform_decide ls_cluster_is_durable ls_pipeline_list)
    target_link_options(lockstep-sim PRIVATE -Wl,--wrap=${seam})
  endforeach()
  ls_sim_test(checkpoint 2 1500)
  ls_sim_test(gang 2 1500)
  ls_sim_test(store 1 1000)
  ls_sim_test(cluster 1 1000)
  ls_sim_test(run 2 1500)
  add_test(NAME sim.mutations COMMAND lockstep-sim --mutations --seeds 1..500)
  set_tests_properties(sim.mutations PROPERTIES TIMEOUT 600 LABELS sim)
endif()

# lockstep-figures: the figures of the guide and of docs/planning.md. tests/tools/figures holds the committed files against it.
file(GLOB figure_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/figures/*.c)
list(REMOVE_ITEM figure_sources ${PROJECT_SOURCE_DIR}/tools/figures/figures.c)
add_library(ls_figures STATIC ${figure_sources})
target_include_directories(ls_figures PUBLIC ${PROJECT_SOURCE_DIR}/tools)
target_link_libraries(ls_figures PUBLIC ls_telemetry)
add_executable(lockstep-figures ${PROJECT_SOURCE_DIR}/tools/figures/figures.c)
target_link_libraries(lockstep-figures PRIVATE ls_figures ls_cli)
if(LS_TEST_LAYERS)
  add_executable(tools_drawings_test ${PROJECT_SOURCE_DIR}/tests/tools/figures/test_drawings.c)
  target_include_directories(tools_drawings_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(tools_drawings_test PRIVATE LS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(tools_drawings_test PRIVATE ls_figures ${CMOCKA_LIBRARY})
  add_test(NAME tools.drawings COMMAND tools_drawings_test)
  set_tests_properties(tools.drawings PROPERTIES TIMEOUT 600 LABELS unit)
endif()

# Seconds of the long tests, measured on two cores. They start first, so that no core waits for the last one, and --quick leaves
# out those of 12 seconds and more.
set(LS_TEST_SECONDS
  cli.hosts-lease=98 cli.hosts-lost=97 cli.exactness=77 cli.diagnose=74 cli.hosts-join=70 cli.hosts-ssh=68 cli.hosts-mesh=30 cli.hosts-faults=64
  cli.checkpoints=62 cli.plan=57 cli.resume=51 cli.disk=50 cli.slurm-faults=49 cli.resize=49 cli.slurm-shrink=45 cli.slurm-apply=25 cli.chaos=43
  cli.huggingface=41 cli.published=15 cli.hosts=36 cli.preempt=32 cli.slurm-engine=29 cli.goodput=27 cli.ranks-faults=23 cli.hosts-diagnose=22
  cli.takeover=22 browser.pages=25 orchestration.daemon=21 orchestration.trouble=20 cli.slurm-answers=21 cli.hosts-leave=20 cli.freeze=18 cli.corruption=18 lib.netns=18
  orchestration.crash=30 comm.comm_netns=17 cli.queue-commands=25 cli.slurm-users=16 cli.ranks-bad-input=16 cli.lease=15
  cli.calibrate=14 cli.queue-api=13 cli.queue-access=12 cli.queue-metrics=8 cli.data=8 cli.radosgw=30 cli.elsewhere=30 cli.stream=5 cli.token-set=10 cli.mirror=12 cli.package=16 cli.bundle=6 cli.blob=8 cli.hosts-freeze=12 orchestration.foresight=11 orchestration.elastic=8)
function(ls_test_cost name labels)
  set(seconds 1)
  foreach(entry ${LS_TEST_SECONDS})
    if(entry MATCHES "^${name}=([0-9]+)$")
      set(seconds ${CMAKE_MATCH_1})
    endif()
  endforeach()
  if(seconds GREATER_EQUAL 12)
    list(APPEND labels slow)
  endif()
  set_tests_properties(${name} PROPERTIES COST ${seconds} LABELS "${labels}")
endfunction()

file(GLOB_RECURSE scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.test.sh)
foreach(script ${scripts})
  get_filename_component(name ${script} NAME)
  string(REGEX REPLACE "^${PROJECT_SOURCE_DIR}/tests/([^/]+)/.*" "\\1" folder ${script})
  string(REPLACE ".test.sh" "" short ${name})
  add_test(NAME ${folder}.${short} COMMAND bash ${script})
  set_tests_properties(${folder}.${short} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77
    ENVIRONMENT "LOCKSTEP=$<TARGET_FILE:lockstep>;LS_SOURCE_DIR=${PROJECT_SOURCE_DIR};LS_BUILD_DIR=${PROJECT_BINARY_DIR}")
  ls_test_cost(${folder}.${short} integration)
endforeach()

if(CMAKE_BUILD_TYPE STREQUAL Release)
  # Those of bench/gpu need a card; their names begin with gpu_.
  file(GLOB benches CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/bench_*.c ${PROJECT_SOURCE_DIR}/bench/gpu/bench_*.c)
  foreach(source ${benches})
    get_filename_component(name ${source} NAME_WE)
    if(source MATCHES "/bench/gpu/")
      set(name gpu_${name})
    endif()
    add_executable(${name} ${source})
    ls_link_all(${name})
  endforeach()
endif()
