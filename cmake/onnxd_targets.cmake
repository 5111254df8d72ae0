# Compile flags of the whole tree, and onnxd_library(): one library target per folder.

# GCC 12 warns of std::string operations that cannot happen (gcc bug 105651): -Wno-restrict.
set(ONNXD_WARNINGS -Wall -Wextra -Werror -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND ONNXD_WARNINGS -Wno-restrict)
endif()
set(ONNXD_HARDENING -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT ONNXD_SANITIZE)
  list(APPEND ONNXD_HARDENING -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -D_GLIBCXX_ASSERTIONS)
endif()

add_library(onnxd_options INTERFACE)
target_compile_options(onnxd_options INTERFACE ${ONNXD_WARNINGS} ${ONNXD_HARDENING})
target_include_directories(onnxd_options INTERFACE ${CMAKE_SOURCE_DIR})
if(ONNXD_SANITIZE)
  # Without the checks that ASan makes as well (null, object-size) and vptr: they double what is
  # compiled.
  target_compile_options(onnxd_options INTERFACE
    -fsanitize=${ONNXD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(ONNXD_SANITIZE MATCHES "undefined")
    target_compile_options(onnxd_options INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
  target_link_options(onnxd_options INTERFACE -fsanitize=${ONNXD_SANITIZE})
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
  foreach(link ${ARG_LINKS})
    if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/${link})
      string(REPLACE "/" "_" link "onnxd_${link}")
    endif()
    target_link_libraries(${name} PUBLIC ${link})
  endforeach()
endfunction()

# onnxd_precompile(target header...): sanitizer builds, whose time is the compiler's, read these
# headers once; the others keep checking that every file includes what it uses.
function(onnxd_precompile target)
  if(ONNXD_SANITIZE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # ccache reads precompiled headers with this alone (and CCACHE_SLOPPINESS, see scripts/build).
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
  endif()
endfunction()
