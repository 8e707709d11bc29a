# What the folders' build files call: muster_layer, muster_test, muster_program; dependencies and flags.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)

# Networks that a module is built for where they are there (src/comm/modules).
find_package(MPI COMPONENTS C)
pkg_check_modules(UCX IMPORTED_TARGET ucx)

# Debian's package file of oneDNN asks for OpenCL's headers, which the library's C interface does not need.
find_library(MUSTER_DNNL dnnl REQUIRED)
find_path(MUSTER_DNNL_INCLUDE oneapi/dnnl/dnnl.h REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${MUSTER_DNNL} INTERFACE_INCLUDE_DIRECTORIES ${MUSTER_DNNL_INCLUDE})

# oneDNN asks libgomp how many threads it may use, and for those where Muster's teams cannot serve it (onednn_team.c).
find_library(MUSTER_GOMP NAMES libgomp.so.1 gomp PATHS /usr/lib/gcc/${CMAKE_LIBRARY_ARCHITECTURE} PATH_SUFFIXES 12 13 14 REQUIRED)

add_library(muster_flags INTERFACE)
target_compile_options(muster_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
  -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $<$<BOOL:${MUSTER_WERROR}>:-Werror>)
target_compile_definitions(muster_flags INTERFACE _GNU_SOURCE)
target_include_directories(muster_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# Some 300 programs of tests, benches and examples are linked with the whole library, which lld does in a third of the
# time of GNU ld. What is installed is linked as the compiler does.
check_linker_flag(C -fuse-ld=lld MUSTER_HAS_LLD)
macro(muster_link_fast)
  if(MUSTER_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endmacro()
if(MUSTER_SANITIZE)
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
endif()

set(MUSTER_LIBRARIES DNNL::dnnl OpenSSL::SSL OpenSSL::Crypto ZLIB::ZLIB JPEG::JPEG PNG::PNG PkgConfig::JANSSON
  PkgConfig::PROTOBUF_C PkgConfig::HWLOC ${MUSTER_GOMP} Threads::Threads m ${CMAKE_DL_LIBS})

# muster_layer(name FILES a.c …): one folder of the library, an object library named muster_NAME.
function(muster_layer name)
  cmake_parse_arguments(LAYER "" "" "FILES" ${ARGN})
  add_library(muster_${name} OBJECT ${LAYER_FILES})
  target_link_libraries(muster_${name} PRIVATE muster_flags DNNL::dnnl OpenSSL::SSL PkgConfig::JANSSON
    PkgConfig::PROTOBUF_C PkgConfig::HWLOC)
  # libFuzzer sees which branches an input takes; in the kernels' unrolled loops it would cost minutes per file.
  if(MUSTER_FUZZ AND NOT name STREQUAL kernels)
    target_compile_options(muster_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYERS muster_${name})
endfunction()

# Tests that say how long something may take allow several times as much, and under sanitizers so many times more.
set(MUSTER_TEST_SLOWNESS 1)
if(MUSTER_SANITIZE)
  set(MUSTER_TEST_SLOWNESS 4)
endif()

# muster_test(test_x layer [source…]): a cmocka program from test_x.c, run by CTest as layer/test_x; its target
# is layer_test_x. It is linked with the static library, so it may call private functions.
function(muster_test name layer)
  set(target ${layer}_${name})
  add_executable(${target} ${name}.c ${ARGN})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(${target} PRIVATE muster_flags muster_static cmocka)
  target_compile_definitions(${target} PRIVATE MU_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    MU_TEST_GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden" MU_TEST_SLOWNESS=${MUSTER_TEST_SLOWNESS})
  add_test(NAME ${layer}/${name} COMMAND ${target})
  set_tests_properties(${layer}/${name} PROPERTIES LABELS ${layer} TIMEOUT 1200)
endfunction()

# muster_test_isa(layer/test_x…): runs the tests again as layer/test_x-avx2 and layer/test_x-base, with the kernels of
# older processors; the usual run takes the best that the processor has. The label isa has all of them.
function(muster_test_isa)
  foreach(test ${ARGN})
    string(REPLACE / _ target ${test})
    string(REGEX REPLACE "/.*" "" layer ${test})
    foreach(isa avx2 base)
      add_test(NAME ${test}-${isa} COMMAND ${PROJECT_SOURCE_DIR}/tests/with_isa ${isa} $<TARGET_FILE:${target}>)
      set_tests_properties(${test}-${isa} PROPERTIES LABELS "${layer};isa" TIMEOUT 1200 SKIP_RETURN_CODE 77)
    endforeach()
  endforeach()
endfunction()

# muster_leave_to_check_long(asan layer/test_x…), or tsan: `.ci/run` does not run these with that sanitizer, because they take
# long and what they run is run by others with it; `make check-long` does, as asan-rest or tsan-rest. Called at the end of
# the folder's build file.
function(muster_leave_to_check_long sanitizer)
  foreach(test ${ARGN})
    get_property(labels TEST ${test} PROPERTY LABELS)
    if(sanitizer STREQUAL tsan)
      list(REMOVE_ITEM labels threads)
    endif()
    set_property(TEST ${test} PROPERTY LABELS ${labels} ${sanitizer}-rest)
  endforeach()
endfunction()

# muster_has_threads(): the tests of this folder have threads. They get the label "threads", which the preset tsan runs,
# and its target tests_with_threads builds their programs. Called at the end of the folder's build file.
add_custom_target(tests_with_threads)
function(muster_has_threads)
  get_property(tests DIRECTORY PROPERTY TESTS)
  set_property(TEST ${tests} APPEND PROPERTY LABELS threads)
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  add_dependencies(tests_with_threads ${targets} ${ARGN})
endfunction()

# muster_program(name source… ): a program that uses the public interface only (examples, benches).
function(muster_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE muster)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
    $<$<BOOL:${MUSTER_WERROR}>:-Werror>)
endfunction()
