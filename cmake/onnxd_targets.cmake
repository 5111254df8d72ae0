# Compile flags of the whole tree, and onnxd_library(): one library target per folder.

# GCC 12 warns of std::string operations that cannot happen (gcc bug 105651): -Wno-restrict. Sanitizers insert
# what makes compilers warn of faults that are none: the other builds look.
set(ONNXD_WARNINGS -Wall -Wextra -Werror -Wno-psabi)
if(ONNXD_SANITIZE)
  set(ONNXD_WARNINGS -w)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND ONNXD_WARNINGS -Wno-restrict)
endif()
# What checks at run time: in sanitizer builds the sanitizers, of which the stack protectors are a part.
# Without the checks that ASan makes as well (null, object-size) and vptr: they double what is compiled.
add_library(onnxd_checks INTERFACE)
if(ONNXD_SANITIZE)
  set(checks -fsanitize=${ONNXD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -pthread)
  if(ONNXD_SANITIZE MATCHES "undefined")
    list(APPEND checks -fno-sanitize=null,object-size,vptr)
  endif()
  target_link_options(onnxd_checks INTERFACE -fsanitize=${ONNXD_SANITIZE})
else()
  set(checks -fstack-protector-strong -fstack-clash-protection)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    list(APPEND checks -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -D_GLIBCXX_ASSERTIONS)
  endif()
endif()
target_compile_options(onnxd_checks INTERFACE ${checks})

# Of the loops that are compiled for one instruction set each. Under sanitizers -O3 compiles for five times as long
# as -O1, to which gcc's expensive ones add that a product and a sum are rounded once: quotients count on it. Checks
# of the arithmetic of addresses would treble that; ASan sees what they lead to.
set(ONNXD_LOOPS_OPTIONS -O3)
if(ONNXD_SANITIZE)
  set(ONNXD_LOOPS_OPTIONS -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND ONNXD_LOOPS_OPTIONS -fexpensive-optimizations)
  endif()
  if(ONNXD_SANITIZE MATCHES "undefined")
    list(APPEND ONNXD_LOOPS_OPTIONS -fno-sanitize=pointer-overflow)
  endif()
endif()
list(APPEND ONNXD_LOOPS_OPTIONS -ffp-contract=fast -fno-math-errno -fno-trapping-math)

add_library(onnxd_options INTERFACE)
target_compile_options(onnxd_options INTERFACE ${ONNXD_WARNINGS})
target_include_directories(onnxd_options INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(onnxd_options INTERFACE onnxd_checks)

# onnxd_precompile(target [header...]): sanitizer builds, whose time is the compiler's, read the standard
# library's headers once for all targets, and with further ones once for this target; the others keep checking
# that every file includes what it uses.
set(ONNXD_STANDARD_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstring> <functional>
  <limits> <map> <memory> <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <variant>
  <vector>)
function(onnxd_precompile target)
  if(NOT ONNXD_SANITIZE)
    return()
  endif()
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${ONNXD_STANDARD_HEADERS} ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM onnxd_standard_headers)
  endif()
  # ccache reads precompiled headers with this alone (and CCACHE_SLOPPINESS, see scripts/build).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

if(ONNXD_SANITIZE)
  file(WRITE ${CMAKE_BINARY_DIR}/standard_headers.cc "")
  add_library(onnxd_standard_headers STATIC ${CMAKE_BINARY_DIR}/standard_headers.cc)
  target_link_libraries(onnxd_standard_headers PRIVATE onnxd_options)
  onnxd_precompile(onnxd_standard_headers ${ONNXD_STANDARD_HEADERS})
endif()

# onnxd_library(folder [LINKS folder... library...]): the .cc files of `folder` as one target. Links
# to other folders are written as folders, in the order of tests/layering/layers.txt.
function(onnxd_library folder)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  string(REPLACE "/" "_" name "onnxd_${folder}")
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC onnxd_options)
  onnxd_precompile(${name})
  foreach(link ${ARG_LINKS})
    if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${link})
      string(REPLACE "/" "_" link "onnxd_${link}")
    endif()
    target_link_libraries(${name} PUBLIC ${link})
  endforeach()
endfunction()
