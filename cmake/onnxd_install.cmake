# What `cmake --install` and CPack put on a machine, in two components: `server` (the program, its codecs,
# configuration and unit) and `development` (the runtime as one library, its headers, the CMake package).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The runtime's folders as one library, so that other programs link one thing: onnxd::runtime.
set(runtime_objects)
foreach(folder base text math tensor graph ops format optimizer fusion session plugin device
    providers_cpu providers_gpu providers_fused providers)
  list(APPEND runtime_objects $<TARGET_OBJECTS:onnxd_runtime_${folder}>)
endforeach()
add_library(onnxd_runtime STATIC ${runtime_objects})
set_target_properties(onnxd_runtime PROPERTIES EXPORT_NAME runtime LINKER_LANGUAGE CXX)
target_compile_features(onnxd_runtime INTERFACE cxx_std_20)
target_include_directories(onnxd_runtime INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/onnxd>)
target_link_libraries(onnxd_runtime INTERFACE spdlog::spdlog Threads::Threads xxhash re2 simdjson utf8proc ${CMAKE_DL_LIBS})
if(ONNXD_ONEDNN)
  target_link_libraries(onnxd_runtime INTERFACE dnnl gomp)
endif()

install(TARGETS onnxd COMPONENT server)
if(TARGET onnxd_image_decoder)
  install(TARGETS onnxd_image_decoder COMPONENT server LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(CODE "set(ONNXD_SOURCE_DIR ${CMAKE_SOURCE_DIR})\nset(ONNXD_BINARY_DIR ${CMAKE_BINARY_DIR})"
  COMPONENT server)
install(SCRIPT cmake/install_service.cmake COMPONENT server)
install(FILES config/onnxd.yaml config/model.yaml COMPONENT server
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/onnxd)
install(TARGETS onnxd_runtime EXPORT onnxd COMPONENT development ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT onnxd NAMESPACE onnxd:: COMPONENT development DESTINATION ${package_folder})
foreach(folder base tensor graph ops format kernel session plugin)
  install(DIRECTORY runtime/${folder} COMPONENT development
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onnxd/runtime FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES runtime/providers/default_providers.h COMPONENT development
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/onnxd/runtime/providers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/onnxd-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/onnxd-config.cmake ${CMAKE_BINARY_DIR}/onnxd-config-version.cmake
  COMPONENT development DESTINATION ${package_folder})

# Debian packages: cpack -G DEB writes onnxd and onnxd-dev.
set(CPACK_PACKAGE_NAME onnxd)
set(CPACK_PACKAGE_VENDOR "onnxd")
set(CPACK_PACKAGE_CONTACT "The authors of onnxd <onnxd@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Serves ONNX models over REST and gRPC")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL server development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME onnxd)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles
  ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/deploy/debian/prerm
  ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME onnxd-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libspdlog-dev, libxxhash-dev, libre2-dev, libsimdjson-dev, libutf8proc-dev")
if(ONNXD_ONEDNN)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libdnnl-dev")
endif()
include(CPack)
